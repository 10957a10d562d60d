"""What an agent takes: memory and CPU, for the requests and limits of the Helm chart.

    python -m benchmarks.resources [--seconds 60] [--kafka 127.0.0.1:9092]

Real processes and real traces of 4.8 kB, sent over HTTP at a steady rate (or into Kafka). CPU is
that of the process, so it says the same beside other work as alone, but for caches that are shared.
Memory is the largest that was resident (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from benchmarks.kafka_cluster import Setup, grown, produce, ready_after, running, worker
from tests.ports import free_port

__all__ = ["main"]

RATE = 100  # traces a second
BURST = 0.25  # seconds between two requests
SERVICES = 5
QUIET = 0.1  # seconds of CPU in three: it has nothing left to do
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Taken:
    """`cpu` in cores, memory in MiB."""

    what: str
    cpu: float
    start: float
    most: float

    def row(self) -> str:
        return f"| {self.what} | {self.cpu * 1000:.0f} | {self.start:.0f} | {self.most:.0f} |"


def cpu(pid: int) -> float:
    """Seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory(pid: int, key: str = "VmHWM") -> float:
    """MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{key}:")[2].split()[0]) / 1024


@contextmanager
def agent(folder: Path, builtin: bool) -> Iterator[tuple[int, int]]:
    """Its process id and port for traces."""
    folder.mkdir()
    otlp, metrics = free_port(), free_port()
    config = folder / "config.json"
    state = {"path": str(folder / "s.sqlite"), "dead_letters": str(folder / "dead.jsonl")}
    http = {"otlp_port": otlp, "metrics_port": metrics}
    config.write_text(json.dumps({"http": http, "state": state, "builtin_scorers": builtin}))
    command = [sys.executable, "-m", "ragmeter.cli.main", "run", "-c", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{metrics}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > end:
                raise SystemExit("ragmeter did not start")
            time.sleep(0.1)
        yield process.pid, otlp
        process.terminate()
        process.wait(60)
    finally:
        process.kill()


def paced(lines: list[bytes], send: Callable[[list[bytes]], None]) -> None:
    """All of them at `RATE`."""
    step, start = round(RATE * BURST), time.monotonic()
    for number in range(0, len(lines), step):
        wait = start + number / RATE - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(lines[number : number + step])


def watched(what: str, pid: int, seconds: float, work: Callable[[], None]) -> Taken:
    """`work` takes `seconds`, or longer on a busy machine; what it left is worked off after it and
    belongs to it as well."""
    before, started, since = cpu(pid), memory(pid, "VmRSS"), time.monotonic()
    work()
    time.sleep(max(0.0, since + seconds - time.monotonic()))
    used = -1.0
    while cpu(pid) - used > QUIET:
        used = cpu(pid)
        time.sleep(3)
    return Taken(what, (used - before) / seconds, started, memory(pid))


def embedded(folder: Path, seconds: float) -> Iterator[Taken]:
    lines = [_now(line) for line in grown(round(RATE * seconds), SERVICES, RATE)]
    for what, builtin, sent in [
        ("at rest", True, []),
        ("100 traces/s, cheap tier", False, lines),
        ("100 traces/s, built-in scorers", True, lines),
    ]:
        with (
            agent(folder / what.replace("/", " "), builtin) as (pid, port),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):

            def send(part: list[bytes], client: httpx.Client = client) -> None:
                body = b"[" + b",".join(part) + b"]"
                client.post("/v1/rag/traces", content=body).raise_for_status()

            yield watched(what, pid, seconds, partial(paced, sent, send))


def _now(line: bytes) -> bytes:
    """Of this moment: the agent takes no trace from the future, and counts old ones as late."""
    trace = json.loads(line)
    trace["timestamp"] = time.time()
    return json.dumps(trace).encode()


def of_worker(folder: Path, bootstrap: str, seconds: float) -> Taken:
    setup = Setup(bootstrap, f"resources-{os.getpid()}")
    setup.make_topics()
    lines = grown(round(RATE * seconds), SERVICES, RATE)
    one = worker(setup, folder)
    with running(one):
        ready_after(one)
        topic = setup.topic("traces")
        return watched(
            "worker, 100 traces/s, built-in scorers",
            one.pid,
            seconds,
            lambda: paced(lines, lambda part: produce(bootstrap, topic, part, setup.partitions)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kafka", help="a broker, for the worker")
    options = parser.parse_args()
    print("| | thousandths of a core | MiB after the start | MiB at most |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for taken in embedded(Path(name), options.seconds):
            print(taken.row(), flush=True)
        if options.kafka:
            print(of_worker(Path(name), options.kafka, options.seconds).row())


if __name__ == "__main__":
    main()
