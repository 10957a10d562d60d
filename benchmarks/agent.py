"""What the agent as a process takes: a replay beside `json.loads`, and traffic sent one by one.

    python -m benchmarks.agent [--traces 8000] [--rounds 3] [--seconds 30]

Traces of about 5 kB of which no passage comes twice (those of `benchmarks.throughput`).

Replays run on one core, in turn: as shipped, without the embedded model, and with hardly any trace
scored by the built-in scorers. The time is the CPU of the process and its children, start and exit
included, and its ratio to `json.loads` of the same bytes just before and after.

Live, traces are posted over one connection at 100 a second, 25 at a time as exporters gather them,
and one by one. CPU is that of the agent's processes, memory the largest that was resident (VmHWM),
both summed over them; what a start does, the loading of the model among it, comes before and is not
counted. The latency is the sender's. A server that only answers is sent the same one by one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.throughput import COUNT, distinct
from benchmarks.throughput import traces as throughput_traces
from tests.ports import free_port

__all__ = ["main"]

RATE = 100  # traces a second, live
SETTLING = 10.0  # seconds: the model is loaded, and what was sent first is worked off
TICK = os.sysconf("SC_CLK_TCK")
RAGMETER = [sys.executable, "-m", "ragmeter"]
BARELY = 1e-6  # a share of traces that is as good as none: 0 is refused

WITHOUT_MODEL = {"sampling": {"model": 0}}
WITHOUT_SCORERS = {"sampling": {"model": 0, "builtin": BARELY}}
REPLAYS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "without the embedded model": WITHOUT_MODEL,
    "without built-in scorers too": WITHOUT_SCORERS,
}
BATCH = 25  # traces of a post, where they are not posted one by one
LIVE: dict[str, tuple[dict[str, Any], int]] = {
    "at rest": ({}, 0),
    "100 traces/s, cheap tier": (WITHOUT_SCORERS, BATCH),
    "100 traces/s, built-in scorers": (WITHOUT_MODEL, BATCH),
    "100 traces/s, built-in scorers, one by one": (WITHOUT_MODEL, 1),
    "100 traces/s, as shipped": ({}, BATCH),
}
"""Settings of each row, and traces of a post; 0: nothing is sent."""
ANSWERS_ONLY = "100 posts/s, a server that only answers"


class Replayed(NamedTuple):
    """Seconds and CPU seconds of a replay, and the ratio of these to `json.loads`."""

    seconds: float
    cpu: float
    ratio: float


class Taken(NamedTuple):
    """A row of the live runs.

    Args:
        cores: CPU seconds a second.
        at_start: MiB when it was ready.
        at_most: MiB at most.
        ready: Seconds from the start to ready.
        p99: Of a post, in seconds; 0 where nothing was sent.
    """

    cores: float
    at_start: float
    at_most: float
    ready: float
    p99: float


def config_file(folder: Path, changes: dict[str, Any], *ports: int) -> Path:
    """Write a configuration whose state lives in `folder`."""
    tree: dict[str, Any] = {"state": {"path": str(folder / "s.sqlite")}, **changes}
    if ports:
        tree["http"] = dict(zip(("otlp_port", "metrics_port"), ports, strict=True))
    path = folder / "config.json"
    path.write_text(json.dumps(tree))
    return path


def parse(lines: Sequence[bytes]) -> float:
    """Return the CPU seconds of `json.loads`."""
    begin = time.process_time()
    for line in lines:
        json.loads(line)
    return time.process_time() - begin


def replay(lines: Sequence[bytes], changes: dict[str, Any]) -> Replayed:
    """Replay traces in a process of its own, on one core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "traces.jsonl").write_bytes(b"\n".join(lines))
        config = config_file(folder, changes, free_port(), free_port())
        before = parse(lines)
        begin = time.perf_counter()
        used = children_cpu()
        files = ("-c", config, "--replay", folder / "traces.jsonl")
        subprocess.run(
            [*RAGMETER, "run", *files, "--exit-after-replay"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, {0}),
            check=True,
        )
        seconds, cpu = time.perf_counter() - begin, children_cpu() - used
        return Replayed(seconds, cpu, cpu / ((before + parse(lines)) / 2))


def children_cpu() -> float:
    """Return the CPU seconds of all children that have ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processes(pid: int) -> list[Path]:
    """Return the folders under /proc of a process and its children."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has its own
    children = [child for task in tasks for child in task.read_text().split()]
    return [Path("/proc", str(one)) for one in (pid, *children)]


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its children so far."""
    spent = 0.0
    for folder in processes(pid):
        fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / TICK
    return spent


def memory_of(pid: int, key: str) -> float:
    """Return the MiB of a process and its children, by a key of `status`."""
    texts = [(folder / "status").read_text() for folder in processes(pid)]
    return sum(int(text.partition(f"{key}:")[2].split()[0]) for text in texts) / 1024


class Served(NamedTuple):
    """A server: its process, its port for traces, and how many seconds it took to be ready."""

    pid: int
    port: int
    ready: float


@contextmanager
def agent(changes: dict[str, Any]) -> Iterator[Served]:
    """Run an agent."""
    with tempfile.TemporaryDirectory() as folder:
        ports = free_port(), free_port()
        config = config_file(Path(folder), changes, *ports)
        with serve([*RAGMETER, "run", "-c", str(config)], *ports) as served:
            yield served


@contextmanager
def bare_server() -> Iterator[Served]:
    """Run a server that only answers."""
    port = free_port()
    with serve([sys.executable, "-m", "benchmarks.bare_server", str(port)], port, port) as served:
        yield served


@contextmanager
def serve(command: Sequence[str], port: int, ready_port: int) -> Iterator[Served]:
    """Run a server, which says on `ready_port` when it is ready."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not is_ready(ready_port):
            time.sleep(0.01)
        yield Served(process.pid, port, time.perf_counter() - begin)
        process.terminate()


def is_ready(port: int) -> bool:
    """Ask by as little work as can be: it shares the processor with the start that it measures."""
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False


def live(
    lines: Sequence[bytes],
    server: AbstractContextManager[Served],
    batch: int,
    seconds: float,
) -> Taken:
    """Return what a server takes while it is sent traces for some time.

    The first quarter of them is sent as fast as it is taken, so that the agent is at work already,
    and not counted.
    """
    posts = [b"[" + b",".join(lines[at : at + batch]) + b"]" for at in range(0, len(lines), batch)]
    first = len(posts) // 4
    with (
        server as (pid, port, ready),
        closing(http.client.HTTPConnection("127.0.0.1", port)) as connection,
    ):
        at_start = memory_of(pid, "VmRSS")
        for post in posts[:first]:
            send(connection, post)
        time.sleep(SETTLING)
        used = cpu_of(pid)
        begin = time.perf_counter()
        latencies = []
        for number, post in enumerate(posts[first:]):
            time.sleep(max(0.0, begin + number * batch / RATE - time.perf_counter()))
            latencies.append(send(connection, post))
        time.sleep(max(0.0, begin + seconds - time.perf_counter()))
        cores = (cpu_of(pid) - used) / (time.perf_counter() - begin)
        p99 = statistics.quantiles(latencies, n=100)[98] if latencies else 0.0
        return Taken(cores, at_start, memory_of(pid, "VmHWM"), ready, p99)


def send(connection: http.client.HTTPConnection, post: bytes) -> float:
    """Send traces, and return the seconds until the answer."""
    begin = time.perf_counter()
    connection.request("POST", "/v1/rag/traces", post)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    base = throughput_traces()
    editions = -(-options.traces // COUNT)
    lines = [line for edition in range(editions) for line in distinct(base, edition)]
    # ids and times of their own, in the order that they came in
    for number, line in enumerate(lines):
        trace = json.loads(line) | {"trace_id": f"t{number}", "timestamp": 1.76e9 + number / 20}
        lines[number] = json.dumps(trace).encode()
    lines = lines[: options.traces]
    rounds = [
        {name: replay(lines, changes) for name, changes in REPLAYS.items()}
        for _ in range(options.rounds)
    ]
    print("| replay on one core | traces/s | CPU µs a trace | x json.loads |")
    print("| --- | ---: | ---: | ---: |")
    for name in REPLAYS:
        seconds = statistics.median(one[name].seconds for one in rounds)
        cpu = statistics.median(one[name].cpu for one in rounds)
        ratio = statistics.median(one[name].ratio for one in rounds)
        spent = 1e6 * cpu / len(lines)
        print(f"| {name} | {len(lines) / seconds:,.0f} | {spent:,.0f} | {ratio:.0f} |")
    print()
    print("| | thousandths of a core | MiB after the start | MiB at most | s to ready | p99 ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    servers = [(name, agent(changes), batch) for name, (changes, batch) in LIVE.items()]
    for name, server, batch in [*servers, (ANSWERS_ONLY, bare_server(), 1)]:
        now = time.time()
        sent = [
            json.dumps(json.loads(line) | {"timestamp": now + number / RATE}).encode()
            for number, line in enumerate(lines[: round(RATE * options.seconds * 4 / 3)])
        ]
        row = live(sent if batch else [], server, max(1, batch), options.seconds)
        print(
            f"| {name} | {1000 * row.cores:.0f} | {row.at_start:.0f} | {row.at_most:.0f}"
            f" | {row.ready:.1f} | {1000 * row.p99:.1f} |"
        )


if __name__ == "__main__":
    main()
