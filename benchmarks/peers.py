"""What others' metrics that need no model cost for a trace, beside the built-in scorers.

    python -m benchmarks.peers [--traces 400] [--rounds 3]

Each rival gets an environment of its own, of pinned versions from the package index, under
`.cache/peers`. All read the same texts (those of `benchmarks.throughput`, where no passage comes
twice) in processes of one thread, in turn; the time is the CPU of the process for the metrics
alone, without its start and imports. Figures are medians over the rounds, in microseconds and as a
ratio to `json.loads` of the same traces, timed in the same process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers_process import PASSES, Figures
from benchmarks.throughput import distinct
from benchmarks.throughput import traces as throughput_traces

__all__ = ["main"]

CACHE = Path(__file__).parents[1] / ".cache" / "peers"
UV = Path(sys.executable).with_name("uv")

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "rouge-score": ("rouge-score==0.1.2",),
    # it imports a module that later versions of langchain-community no longer have
    "ragas": ("ragas==0.4.3", "rapidfuzz==3.14.3", "langchain-community==0.3.27"),
    # its textstat needs pkg_resources, its whylogs an older numpy
    "langkit": ("langkit==0.0.35", "setuptools<80", "pandas<2.2", "numpy<2"),
}
"""What each rival is installed from; the rest as the resolver chooses it."""


def interpreter(package: str) -> str:
    """Return a Python that has a package; ours for `ragmeter`."""
    if package == "ragmeter":
        return sys.executable
    folder = CACHE / package
    python = folder / "bin" / "python"
    installed = folder / "installed"
    wanted = "\n".join(REQUIREMENTS[package])
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([UV, "venv", "--quiet", "--clear", "--python", "3.11", folder], check=True)
        install = (UV, "pip", "install", "--quiet", "--python", python)
        subprocess.run([*install, *REQUIREMENTS[package]], check=True)
        installed.write_text(wanted)
    return str(python)


def measure(name: str, file: Path) -> Figures:
    """Return what one pass costs for a trace, in a process of its own."""
    program = Path(__file__).with_name("peers_process.py")
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAGAS_DO_NOT_TRACK": "true"}
    done = subprocess.run(
        [interpreter(PASSES[name].package), program, name, file],
        env=os.environ | one_thread,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def write_traces(file: Path, count: int) -> None:
    """Write traces of about 5 kB as JSON lines."""
    file.write_bytes(b"\n".join(distinct(throughput_traces()[:count], 1)))


def table(rounds: Sequence[dict[str, Figures]]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| | µs a trace | x json.loads |", "| --- | ---: | ---: |"]
    for name, one in PASSES.items():
        spent = statistics.median(figures[name].microseconds for figures in rounds)
        ratio = statistics.median(figures[name].ratio for figures in rounds)
        lines.append(f"| {one.label} | {spent:,.0f} | {ratio:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "traces.jsonl")
        write_traces(file, options.traces)
        rounds = [{name: measure(name, file) for name in PASSES} for _ in range(options.rounds)]
    print(table(rounds))


if __name__ == "__main__":
    main()
