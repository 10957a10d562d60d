"""What traces that are posted one by one cost, and how long their senders wait.

    python -m benchmarks.one_by_one TRACES.jsonl [--against CHECKOUT] [--rate 100] [--count 2000]
        [--rounds 3] [--set scorers.processes=0]

A real agent in processes of its own, with an empty state file; a sender with one kept connection
posts the traces of `benchmarks.workload` at a steady rate, each under the time of its posting, and
waits for each answer, which says that the trace is durable. CPU is that of all processes of the
agent over the time of the posts: of the thread that listens, of the other threads (commits, the
worker, the embedded model), and of scorer processes. With `--against` another checkout takes turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.replay import HERE, parse_setting

__all__ = ["main"]

WARM_UP = 100  # traces that are posted before the clock starts: imports, memos, first commits
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Run:
    """One round: the cores that the agent took, of them by thread, and waits in seconds."""

    cores: float
    threads: dict[str, float]
    waits: list[float]

    def percentile(self, level: float) -> float:
        """A percentile of the waits in milliseconds."""
        return 1e3 * sorted(self.waits)[int(level * len(self.waits))]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running_agent(checkout: Path, settings: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Run the agent of a checkout; yields its process id and the URL for traces."""
    traces, metrics = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        whole = {
            **settings,
            "http": {"otlp_port": traces, "metrics_port": metrics},
            "state": {"path": f"{folder}/state.sqlite", "dead_letters": f"{folder}/dead.jsonl"},
        }
        config = Path(folder) / "ragmeter.json"
        config.write_text(json.dumps(whole))
        code = "import sys; from ragmeter.cli.main import main; sys.argv[0] = 'ragmeter'; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "run", "-c", str(config)],
            cwd=checkout,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )
        try:
            for _ in range(600):
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{metrics}/readyz", trust_env=False).is_success:
                        break
                time.sleep(0.1)
            yield process.pid, f"http://127.0.0.1:{traces}/v1/rag/traces"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds of a process and its children, by the name of the thread."""
    seconds: defaultdict[str, float] = defaultdict(float)
    children = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    )
    for one in [pid, *map(int, children.stdout.split())]:
        for task in Path(f"/proc/{one}/task").iterdir():
            with contextlib.suppress(OSError):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                main = task.name == str(pid)
                name = "listener" if main else "other threads" if one == pid else "scorers"
                seconds[name] += (int(fields[11]) + int(fields[12])) / TICKS
    return seconds


def post(checkout: Path, settings: dict[str, Any], lines: list[bytes], rate: float) -> Run:
    """Post the traces to a new agent of a checkout."""
    bodies = [json.loads(line) for line in lines]
    with running_agent(checkout, settings) as (pid, url), httpx.Client(trust_env=False) as client:
        waits: list[float] = []
        before, begin = thread_seconds(pid), 0.0
        for number, body in enumerate(bodies):
            if number == WARM_UP:
                time.sleep(3)
                before, begin = thread_seconds(pid), time.monotonic()
            if number >= WARM_UP:
                time.sleep(max(0.0, begin + (number - WARM_UP) / rate - time.monotonic()))
            body["timestamp"] = time.time()
            content = json.dumps(body).encode()
            since = time.monotonic()
            client.post(url, content=content).raise_for_status()
            if number >= WARM_UP:
                waits.append(time.monotonic() - since)
        wall = time.monotonic() - begin
        used = thread_seconds(pid)
    threads = {name: (used[name] - before.get(name, 0.0)) / wall for name in used}
    return Run(sum(threads.values()), threads, waits)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON")
    options = parser.parse_args()
    settings: dict[str, Any] = {}
    for text in options.set:
        settings |= parse_setting(text)
    with options.traces.open("rb") as file:
        lines = [line for _, line in zip(range(options.count + WARM_UP), file, strict=False)]
    sides = {"this": HERE} | ({"against": options.against.resolve()} if options.against else {})
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, checkout in sides.items():
            runs[name].append(post(checkout, settings, lines, options.rate))
    print(f"{options.count:,} traces at {options.rate:g}/s, load {os.getloadavg()[0]:.1f}\n")
    print("| code | cores | lowest … highest | p50 ms | p99 ms | by thread |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for name, found in runs.items():
        cores = sorted(run.cores for run in found)
        p50, p99 = (statistics.median(run.percentile(at) for run in found) for at in (0.5, 0.99))
        middle = sorted(found, key=lambda run: run.cores)[len(found) // 2]
        parts = ", ".join(
            f"{of} {share:.3f}" for of, share in middle.threads.items() if share > 0.002
        )
        span = f"{cores[0]:.3f} … {cores[-1]:.3f}"
        print(f"| {name} | {middle.cores:.3f} | {span} | {p50:.1f} | {p99:.1f} | {parts} |")


if __name__ == "__main__":
    main()
