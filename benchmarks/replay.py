"""Time `ragmeter run --replay` on distinct traces, beside another version of the code.

    python -m benchmarks.replay TRACES.jsonl [--against CHECKOUT] [--rounds 3] [--cores 0]
        [--set scorers.processes=0] [--off]

TRACES.jsonl is what `benchmarks.workload` writes. Each run is the whole command in a process of its
own, start and exit included, on an empty state file. CPU is that of the process and its children.
With `--against`, the code of another checkout (for instance `git worktree add CHECKOUT e2e623e`)
runs in turn with this one, and each round gives a ratio: what the machine does meanwhile hits
both. A round before the first, of which nothing is shown, writes the byte code. `--cores` pins all
processes to these cores. `--off` leaves out the built-in scorers.

The yardsticks are decoders alone on the same bytes, in the same rounds, by CPU: `json.loads`, and
orjson and msgspec where they are installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["main"]

HERE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Run:
    """One replay: seconds of wall time and of CPU, and the largest process in MiB."""

    wall: float
    cpu: float
    memory: float


def replay(checkout: Path, traces: Path, settings: dict[str, Any], cores: set[int] | None) -> Run:
    """Replay the traces once by the code of a checkout."""
    own = (checkout / "agent/ragmeter/cli/main.py").exists()
    command = "from ragmeter.cli import start" if own else "from agent.cli import main as start"
    with tempfile.TemporaryDirectory() as folder:
        state = {"path": f"{folder}/state.sqlite", "dead_letters": f"{folder}/dead.jsonl"}
        config = Path(folder) / "ragmeter.json"
        config.write_text(json.dumps({**settings, "state": state}))
        code = f"import sys; sys.argv[0] = 'ragmeter'; {command}; start()"
        arguments = [sys.executable, "-c", code, "run", "-c", str(config)]
        arguments += ["--replay", str(traces), "--exit-after-replay"]
        begin = time.perf_counter()
        process = subprocess.Popen(
            arguments,
            cwd=checkout,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""},
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{checkout}: the replay ended with status {status}")
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def decoders() -> dict[str, Callable[[bytes], Any]]:
    """The decoders that are installed."""
    found: dict[str, Callable[[bytes], Any]] = {"json.loads": json.loads}
    for name, function in (("orjson", "loads"), ("msgspec.json", "decode")):
        try:
            found[f"{name}.{function}"] = getattr(importlib.import_module(name), function)
        except ModuleNotFoundError:
            continue
    return found


def decode_seconds(decode: Callable[[bytes], Any], lines: list[bytes]) -> float:
    begin = time.process_time()
    for line in lines:
        decode(line)
    return time.process_time() - begin


def parse_setting(text: str) -> dict[str, Any]:
    """`scorers.processes=0` as a tree of settings."""
    path, _, value = text.partition("=")
    tree: Any = json.loads(value)
    for name in reversed(path.split(".")):
        tree = {name: tree}
    return dict(tree)


def row(name: str, runs: list[Run], count: int) -> str:
    walls = sorted(count / run.wall for run in runs)
    cpu = statistics.median(run.cpu for run in runs) / count * 1e4
    memory = max(run.memory for run in runs)
    span = f"{walls[0]:.0f} … {walls[-1]:.0f}"
    return f"| {name} | {statistics.median(walls):.0f} | {span} | {cpu:.2f} | {memory:.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--off", action="store_true")
    options = parser.parse_args()
    both: dict[str, Any] = {}
    if options.off:
        both = {"builtin_scorers": False}
    own = dict(both)
    for text in options.set:
        own |= parse_setting(text)
    lines = options.traces.read_bytes().splitlines()
    cores = set(options.cores) if options.cores else None
    sides = {"this": (HERE, own)}
    if options.against:
        sides["against"] = (options.against.resolve(), both)
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    decoding: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder) / "few.jsonl"
        few.write_bytes(b"\n".join(lines[:100]))
        for checkout, settings in sides.values():
            replay(checkout, few, settings, cores)
    for _ in range(options.rounds):
        for name, (checkout, settings) in sides.items():
            runs[name].append(replay(checkout, options.traces.resolve(), settings, cores))
        for name, decode in decoders().items():
            decoding.setdefault(name, []).append(decode_seconds(decode, lines))
    size = sum(map(len, lines)) / len(lines)
    load = os.getloadavg()[0]
    print(f"{len(lines):,} traces of {size:,.0f} bytes, {options.rounds} rounds, load {load:.1f}\n")
    print("| code | traces/s | lowest … highest | CPU s / 10,000 | MiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, found in runs.items():
        print(row(name, found, len(lines)))
    for name, seconds in decoding.items():
        cpu = statistics.median(seconds)
        each = 1e4 / len(lines)
        print(f"| {name} alone | {len(lines) / cpu:.0f} | | {cpu * each:.2f} | |")
    if options.against:
        for label, field in (("wall time", "wall"), ("CPU", "cpu")):
            ratios = sorted(
                getattr(old, field) / getattr(new, field)
                for new, old in zip(runs["this"], runs["against"], strict=True)
            )
            middle = statistics.median(ratios)
            print(f"\nby {label} {middle:.2f} times as fast ({ratios[0]:.2f} … {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
