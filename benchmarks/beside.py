"""What an instrumented application notices of ragmeter beside it, up, down, slow or full.

    python -m benchmarks.beside [--rounds 20] [--requests 100] [--rate 20] [--rest 20]

An application process for each condition (`benchmarks.beside_app`: 50 ms of waiting for what would
be its model and index, about 1 ms of Python, three spans of 25 kB in all), all alive all the time;
in each round each serves a block of requests that come at random, `--rate` a second (0: one after
the other without a pause, 5 ms of waiting, which is the worst case), one process after the other in
random order, so that what else runs on the machine hits all alike. Blocks in which the machine's
host took much of the CPU away (`steal` above the median of all blocks) are left out. Printed are
latencies, what a condition adds to one without instrumentation and to one whose exporter does
nothing (with 95 % intervals), errors, and how long the shutdown took; and what ragmeter itself
takes at rest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np

from benchmarks.beside_app import LOOPS, work
from benchmarks.beside_sidecars import PATH, answering, closed, silent
from tests.ports import free_port

__all__ = ["RECOMMENDED", "main"]

# What docs/otlp.md recommends, with the reasons.
RECOMMENDED = {
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
    "OTEL_BSP_MAX_QUEUE_SIZE": "128",
    "OTEL_BSP_SCHEDULE_DELAY": "1000",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
}
LARGER = RECOMMENDED | {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64", "OTEL_BSP_MAX_QUEUE_SIZE": "512"}
DRAWS = 1000
BASES = ("none", "noop")  # what the others are held against, in this order


class Ragmeter:
    """`ragmeter run` on a state of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        port = free_port()
        config = folder / "config.json"  # JSON is YAML
        state = {"path": str(folder / "s.sqlite")}
        http = {"otlp_port": port, "metrics_port": free_port()}
        config.write_text(json.dumps({"http": http, "state": state}))
        self.page = f"http://127.0.0.1:{http['metrics_port']}/metrics"
        self.url = f"http://127.0.0.1:{port}{PATH}"
        command = [sys.executable, "-m", "ragmeter", "run", "-c", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(self.page)
                return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise SystemExit("ragmeter did not start")

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def at_rest(self, seconds: float) -> str:
        before = self.cpu()
        time.sleep(seconds)
        share = (self.cpu() - before) / seconds
        return f"{self.resident():.0f} MiB resident, {share:.2%} of a core over {seconds:.0f} s"

    def accepted(self) -> dict[str, int]:
        """Of its counters: spans by what became of them."""
        rows = httpx.get(self.page).text.splitlines()
        found = [row.rpartition(" ") for row in rows if row.startswith("ragmeter_otlp_spans_total")]
        return {name.partition('result="')[2][:-2]: int(float(value)) for name, _, value in found}


@contextmanager
def ragmeter(folder: Path) -> Iterator[Ragmeter]:
    agent = Ragmeter(folder)
    try:
        yield agent
    finally:
        agent.process.send_signal(signal.SIGCONT)
        agent.process.terminate()
        agent.process.wait(60)


class Application:
    """A process of `benchmarks.beside_app` and what it measured."""

    def __init__(
        self, target: str, traffic: Iterable[float], settings: Mapping[str, str], log: IO[str]
    ) -> None:
        command = [sys.executable, "-m", "benchmarks.beside_app", target, *map(str, traffic)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**clean, **settings},
        )
        self.blocks: list[list[float]] = []
        self.stolen: list[int] = []
        self.errors = 0

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def serve(self, count: int, keep: bool) -> None:
        assert self.process.stdin is not None
        before = stolen()
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        reply = self.read()
        self.errors += reply["errors"]
        if keep:
            self.blocks.append(reply["seconds"])
            self.stolen.append(stolen() - before)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def shutdown(self) -> float:
        seconds: float = self.read()["shutdown"]
        self.process.wait()
        return seconds


def stolen() -> int:
    """Ticks of CPU that the machine's host took away, so far; see proc(5)."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8])


def loops_of_a_millisecond() -> int:
    def once() -> float:
        started = time.perf_counter()
        work(LOOPS)
        return time.perf_counter() - started

    return round(LOOPS * 0.001 / min(once() for _ in range(50)))


def undisturbed(applications: Mapping[str, Application]) -> dict[str, np.ndarray]:
    """Milliseconds, shape (blocks, requests), of blocks in which little CPU was stolen: at most
    the median, and of every condition one block at least."""
    taken = [one.stolen for one in applications.values()]
    bound = max(np.median(taken), *map(min, taken))
    return {
        name: np.array(one.blocks)[np.array(one.stolen) <= bound] * 1000
        for name, one in applications.items()
    }


def drawn(blocks: np.ndarray, quantile: float, rng: np.random.Generator) -> np.ndarray:
    """The quantile of all requests of blocks drawn with replacement, `DRAWS` times."""
    picked = rng.integers(len(blocks), size=(DRAWS, len(blocks)))
    found: np.ndarray = np.percentile(blocks[picked].reshape(DRAWS, -1), quantile, axis=1)
    return found


def added(blocks: np.ndarray, base: np.ndarray, quantile: float) -> str:
    """Milliseconds and a 95 % interval: the bootstrap over blocks."""
    rng = np.random.default_rng(1)
    spread = drawn(blocks, quantile, rng) - drawn(base, quantile, rng)
    low, high = np.percentile(spread, (2.5, 97.5))
    difference = np.percentile(blocks, quantile) - np.percentile(base, quantile)
    return f"{difference:+.2f} ({low:+.2f} … {high:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=100, help="of a block")
    parser.add_argument("--rate", type=float, default=20, help="requests a second, 0: no pause")
    parser.add_argument("--only", help="these conditions, by how they begin, with commas")
    parser.add_argument("--rest", type=float, default=20, help="seconds at rest")
    options = parser.parse_args()
    wanted = tuple((options.only or "").split(","))
    traffic = loops_of_a_millisecond(), 0.05 if options.rate else 0.005, options.rate
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = stack.enter_context((folder / "log.txt").open("w"))
        up = stack.enter_context(ragmeter(folder / "up"))
        time.sleep(5)  # what starts is not at rest
        print(f"ragmeter, started: {up.at_rest(options.rest)}", flush=True)
        stopped = stack.enter_context(ragmeter(folder / "stopped"))
        stopped.process.send_signal(signal.SIGSTOP)
        down = stack.enter_context(closed())
        targets: dict[str, tuple[str, dict[str, str]]] = {
            "not instrumented": ("none", {}),
            "exporter does nothing": ("noop", RECOMMENDED),
            "up": (up.url, RECOMMENDED),
            "up, batches of 64": (up.url, LARGER),
            "up, batches of 64, switch interval 0.5 ms": (
                up.url,
                LARGER | {"SWITCH_INTERVAL": "0.0005"},
            ),
            "up, defaults of the SDK": (up.url, {}),
            "down": (down, RECOMMENDED),
            "down, defaults of the SDK": (down, {}),
            "never answers": (stack.enter_context(silent()), RECOMMENDED),
            "answers after 5 s": (stack.enter_context(answering(200, 5))[0], RECOMMENDED),
            "full (429)": (stack.enter_context(answering(429))[0], RECOMMENDED),
            "stopped (SIGSTOP)": (stopped.url, RECOMMENDED),
        }
        applications = {
            name: Application(target, traffic, settings, log)
            for name, (target, settings) in targets.items()
            if target in BASES or not options.only or name.startswith(wanted)
        }
        rng = random.Random(1)
        for number in range(options.rounds + 1):  # the first warms up, and fills the queues
            for name in rng.sample(list(applications), len(applications)):
                applications[name].serve(options.requests, keep=number > 0)
        for application in applications.values():
            application.close()
        shutdowns = {name: application.shutdown() for name, application in applications.items()}
        report(applications, shutdowns)
        print(f"\nragmeter was sent, of those that it was up for: {up.accepted()}")
        time.sleep(10)  # scoring what came last
        print(f"ragmeter, after the load: {up.at_rest(options.rest)}")


def report(applications: Mapping[str, Application], shutdowns: Mapping[str, float]) -> None:
    blocks = undisturbed(applications)
    plain, noop = list(blocks.values())[:2]
    heads = (
        "requests|p50 ms|p99 ms|p50 added, to none|p99 added, to none|to a no-op exporter|errors"
    )
    heads = f"| ragmeter | {heads.replace('|', ' | ')} | shutdown s |"
    print(heads + "\n| --- |" + " ---: |" * (heads.count("|") - 2))
    for name, one in blocks.items():
        p50, p99 = np.percentile(one, (50, 99))
        print(
            f"| {name} | {one.size} | {p50:.2f} | {p99:.2f} | {added(one, plain, 50)}"
            f" | {added(one, plain, 99)} | {added(one, noop, 99)} | {applications[name].errors}"
            f" | {shutdowns[name]:.1f} |"
        )


if __name__ == "__main__":
    main()
