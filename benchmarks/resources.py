"""What an agent takes: memory and CPU, for the requests and limits of the Helm chart.

    python -m benchmarks.resources [--seconds 60] [--kafka 127.0.0.1:9092]
    python -m benchmarks.resources --workload TRACES.jsonl [--processes 0 1 2] [--rounds 1]

Real processes and real traces of 4.8 kB, sent over HTTP at a steady rate (or into Kafka). CPU is
that of the process, so it says the same beside other work as alone, but for caches that are shared.
Memory is the largest that was resident (VmHWM).

With `--workload` (made by `benchmarks.workload`) it shows what scorer processes change: a replay of
the file, with the CPU of the agent and of its scorers apart, and the latency of a sender that posts
100 traces a second one by one. The agent's own CPU for a trace bounds the rate on any number of
cores.
"""

from __future__ import annotations

import argparse
import asyncio
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

import aiohttp
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


def scorers(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if path.read_text().rpartition(") ")[2].split()[1] == str(pid):
                found.append(int(path.parent.name))
        except FileNotFoundError:
            pass
    return found


@contextmanager
def agent(folder: Path, builtin: bool, processes: int = 0) -> Iterator[tuple[int, int]]:
    """Its process id and port for traces."""
    folder.mkdir()
    otlp, metrics = free_port(), free_port()
    config = folder / "config.json"
    state = {"path": str(folder / "s.sqlite"), "dead_letters": str(folder / "dead.jsonl")}
    http = {"otlp_port": otlp, "metrics_port": metrics}
    tree = {"http": http, "state": state, "builtin_scorers": builtin}
    config.write_text(json.dumps({**tree, "scorers": {"processes": processes}}))
    command = [sys.executable, "-m", "ragmeter", "run", "-c", str(config)]
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


def replayed(folder: Path, workload: Path, processes: int) -> str:
    """A row on `ragmeter run --replay` with so many scorer processes."""
    folder.mkdir()
    state = {"path": str(folder / "s.sqlite"), "dead_letters": str(folder / "dead.jsonl")}
    config = folder / "config.json"
    config.write_text(json.dumps({"state": state, "scorers": {"processes": processes}}))
    command = [sys.executable, "-m", "ragmeter", "run", "-c", str(config)]
    command += ["--replay", str(workload), "--exit-after-replay"]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    own, resident = 0.0, 0.0
    theirs: dict[int, tuple[float, float]] = {}  # CPU and memory of each scorer process
    while process.poll() is None:
        try:
            own, resident = cpu(process.pid), memory(process.pid)
            for child in scorers(process.pid):
                theirs[child] = cpu(child), memory(child)
        except (FileNotFoundError, ValueError, IndexError):  # it ends just now
            pass
        time.sleep(0.05)
    wall = time.monotonic() - began
    with workload.open("rb") as file:
        number = sum(1 for _ in file)
    most = max((mib for _, mib in theirs.values()), default=0.0)
    each = 1e6 / number
    scoring = sum(seconds for seconds, _ in theirs.values())
    return (
        f"| {processes} | {number / wall:.0f} | {own * each:.0f} | {scoring * each:.0f} |"
        f" {number / own:.0f} | {resident:.0f} | {most:.0f} |"
    )


def posted(folder: Path, workload: Path, processes: int, seconds: float) -> str:
    """A row on posts of one trace each, `RATE` a second, over one connection."""
    with workload.open("rb") as file:
        lines = [json.loads(next(file)) for _ in range(round(RATE * seconds))]

    async def post(port: int) -> list[float]:
        taken = []
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            start = time.perf_counter()
            for number, trace in enumerate(lines):
                await asyncio.sleep(start + number / RATE - time.perf_counter())
                body = json.dumps({**trace, "timestamp": time.time()}).encode()
                before = time.perf_counter()
                async with session.post("/v1/rag/traces", data=body) as response:
                    await response.read()
                    response.raise_for_status()
                taken.append((time.perf_counter() - before) * 1000)
        return sorted(taken)

    with agent(folder, True, processes) as (pid, port):
        all_of_it = (pid, *scorers(pid))
        before = sum(map(cpu, all_of_it))
        taken = asyncio.run(post(port))
        time.sleep(3)
        used = (sum(map(cpu, all_of_it)) - before) / seconds
    p50, p99 = (taken[int(len(taken) * share)] for share in (0.5, 0.99))
    return f"| {processes} | {p50:.1f} | {p99:.1f} | {taken[-1]:.1f} | {used * 1000:.0f} |"


def with_processes(folder: Path, options: argparse.Namespace) -> None:
    print(
        "| processes | traces/s | agent: us of CPU a trace | scorers: us | agent's limit: traces/s"
        " | agent: MiB | a scorer: MiB |"
    )
    print("| ---: " * 7 + "|", flush=True)
    rounds = [(n, r) for r in range(options.rounds) for n in options.processes]
    for number, turn in rounds:
        row = replayed(folder / f"replay {number} {turn}", options.workload, number)
        print(row, flush=True)
    print("\n| processes | p50, ms | p99, ms | worst, ms | thousandths of a core |")
    print("| ---: " * 5 + "|", flush=True)
    for number, turn in rounds:
        where = folder / f"post {number} {turn}"
        print(posted(where, options.workload, number, options.seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kafka", help="a broker, for the worker")
    parser.add_argument("--workload", type=Path, help="traces, to compare numbers of processes")
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if options.workload:
        with tempfile.TemporaryDirectory() as name:
            with_processes(Path(name), options)
        return
    print("| | thousandths of a core | MiB after the start | MiB at most |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for taken in embedded(Path(name), options.seconds):
            print(taken.row(), flush=True)
        if options.kafka:
            print(of_worker(Path(name), options.kafka, options.seconds).row())


if __name__ == "__main__":
    main()
