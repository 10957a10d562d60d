"""The judge tier beside open-rag-eval in one run: calls, latency, throughput, CPU, isolation.

    python -m benchmarks.judge [--reference-python REF/bin/python] [--latency 0.2] [--traces 128]

Both ask the same stub judge (benchmarks/judge_workload.py, a process of its own), which answers
after a fixed time, about the same traces: 5 passages, 5 citations, 12 nuggets. It shows what a
client does with a judge, nothing about the quality of verdicts. Times of the judge rule: only CPU
figures depend on the machine, and what else runs on it only ever adds to them.

A Python with open-rag-eval, made anywhere (without its connectors, its server and the packages for
HHEM, which a constant replaces; with torch and transformers installed as well, they are used):

    python3 -m venv REF
    REF/bin/pip install "openai~=2.7.2" "anthropic~=0.72.1" "together~=1.5.30" \\
        "google-genai~=1.50.1" "numpy~=2.2.4" "pandas==2.2.3" "pydantic==2.11.7" \\
        "requests~=2.32.3" "tenacity~=9.1.2" "matplotlib~=3.10.1" rouge
    REF/bin/pip install --no-deps "open-rag-eval==0.3.0"

Without `--reference-python` only our side runs. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.judge_ours import depth, judge, traces
from benchmarks.judge_workload import Workload, workload

__all__ = ["main"]

ROOT = Path(__file__).parent.parent
ALONE = 5  # traces one after another
REFERENCE_QUERIES = 20  # of open-rag-eval side by side: 18 s, four full rounds of its five threads
WORKERS = 5  # the default of open-rag-eval's evaluate_batch
FAULTY_LATENCY = 0.01  # seconds, where time does not count
FAULTY = 100  # traces
FAMILIES = 4
TOKEN_TRACES = 20

Row = tuple[str, str, str, str]
"""What, ours, the reference's, the target."""


@contextmanager
def stub(latency: float, malformed: float = 0.0) -> Iterator[str]:
    """The base URL of a stub judge in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.judge_workload"]
    command += [f"--latency={latency}", f"--malformed={malformed}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def reference(python: str, base_url: str, queries: Workload, workers: int) -> dict[str, Any]:
    """What benchmarks/judge_reference.py found; the first query warms it up."""
    task = {
        "base_url": base_url,
        "warm_up": queries[0],
        "queries": queries[1:],
        "workers": workers,
    }
    done = subprocess.run(
        [python, str(ROOT / "benchmarks" / "judge_reference.py")],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the reference failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stats(base_url: str, action: str = "stats") -> dict[str, Any]:
    """What the stub judge has counted since the last `reset`."""
    request = urllib.request.Request(
        base_url.removesuffix("/v1") + f"/{action}", method="GET" if action == "stats" else "POST"
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        counts: dict[str, Any] = json.load(reply)
    return counts


def tokens(python: str | None) -> list[Row]:
    """Prompt tokens, in characters / 4, of the same traces."""
    queries = workload(TOKEN_TRACES)
    with stub(FAULTY_LATENCY) as url:
        judge([[*traces(queries[:1]), *traces(queries)]], url, side_by_side=True)
        ours = stats(url)["input_tokens"] / TOKEN_TRACES
        theirs = 0.0
        if python:
            stats(url, "reset")
            reference(python, url, [queries[0], *queries], WORKERS)
            theirs = stats(url)["input_tokens"] / (TOKEN_TRACES + 1)
    share = f" ({ours / theirs:.2f} of theirs)" if theirs else ""
    what = "prompt tokens a trace, characters / 4"
    return [(what, f"{ours:.0f}{share}", f"{theirs:.0f}" if theirs else "", "0.55 of theirs")]


def alone(python: str | None, latency: float) -> list[Row]:
    """One trace at a time."""
    with stub(latency) as url:
        (ours,) = judge([traces(workload(ALONE + 1))], url, side_by_side=False)
        theirs = reference(python, url, workload(ALONE + 1), 0) if python else None
    deepest = max(depth(calls) for calls in ours.calls)
    return [
        (
            "one trace: round trips in sequence",
            f"{deepest}",
            f"{theirs['calls'] / ALONE:g}" if theirs else "",  # all of them are in sequence
            "at most 4",
        ),
        (
            "one trace: calls",
            f"{ours.requests / ALONE:g}",
            f"{theirs['calls'] / ALONE:g}" if theirs else "",
            "at most 16",
        ),
        (
            "one trace: seconds (median)",
            f"{statistics.median(ours.walls):.2f}",
            f"{statistics.median(theirs['walls']):.2f}" if theirs else "",
            f"{4.25 * latency:.2f}",
        ),
    ]


def together(python: str | None, latency: float, count: int) -> list[Row]:
    """Many traces at once, each new, then the same ones again."""
    batch = traces(workload(count + 1))
    with stub(latency) as url:
        # 20 traces as theirs, by a client that has just started; then as many as asked for
        (few,) = judge([batch[: REFERENCE_QUERIES + 1]], url, side_by_side=True)
        ours, again = judge([batch, batch[1:]], url, side_by_side=True)
        theirs = None
        if python:
            theirs = reference(python, url, workload(REFERENCE_QUERIES + 1), WORKERS)
    rates = {len(run.walls): len(run.walls) / run.wall for run in (few, ours)}
    other = REFERENCE_QUERIES / theirs["wall"] if theirs else 0.0
    cpu = 1000 * ours.cpu / ours.requests
    other_cpu = 1000 * theirs["cpu"] / theirs["calls"] if theirs else 0.0
    return [
        *(
            (
                f"traces a second, {number} of them, default settings of both",
                f"{rate:.1f}" + (f", {rate / other:.1f} times theirs" if theirs else ""),
                f"{other:.2f}" if theirs else "",
                "7 times theirs",
            )
            for number, rate in rates.items()
        ),
        (
            "CPU of the client, ms a call",
            f"{cpu:.2f}",
            f"{other_cpu:.1f}" if theirs else "",
            "at most 1",
        ),
        (
            "the same traces again: calls",
            f"{again.requests}",
            f"{_repeated(python)} a trace" if python else "",
            "0",
        ),
    ]


def _repeated(python: str) -> int:
    """Calls of the reference for a trace that it has judged already."""
    queries = workload(1)
    with stub(FAULTY_LATENCY) as url:
        found = reference(python, url, [*queries, *queries], 0)
    return int(found["calls"])


def faulty(python: str | None, share: float) -> list[Row]:
    """What is lost when so many answers are malformed."""
    queries = workload(FAULTY + 1, seed=11)
    with stub(FAULTY_LATENCY, share) as url:
        (ours,) = judge([traces(queries)], url, side_by_side=True, concurrency=16)
        theirs = reference(python, url, queries, 0) if python else None
    lost, beside, total = ours.lost()
    kept = total - lost
    row = f"{share:.0%} of answers malformed: "
    if not theirs:
        return [
            (f"{row}metrics kept", f"{kept} of {total}", "", ""),
            (f"{row}metrics lost whose calls all succeeded", f"{beside}", "", "0"),
        ]
    survived = sum(len(families) for families in theirs["kept"])
    innocent = sum(
        FAMILIES - len(set(kept_) | set(broken))
        for kept_, broken in zip(theirs["kept"], theirs["broken"], strict=True)
    )
    everything = sum(not families for families in theirs["kept"])
    families = FAULTY * FAMILIES
    return [
        (
            f"{row}metrics kept (theirs: families of metrics)",
            f"{kept} of {total}",
            f"{survived} of {families}, {everything} of {FAULTY} traces without any",
            "",
        ),
        (f"{row}lost, though none of their calls failed", f"{beside}", f"{innocent}", "0"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reference-python", metavar="PATH", help="a Python with open-rag-eval")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of the stub judge")
    parser.add_argument("--traces", type=int, default=128, help="traces side by side")
    options = parser.parse_args()
    python = options.reference_python
    print("| | ragmeter | open-rag-eval 0.3.0 | to reach |", flush=True)
    print("|---|---|---|---|")
    parts: list[Callable[[], list[Row]]] = [
        lambda: tokens(python),
        lambda: alone(python, options.latency),
        lambda: together(python, options.latency, options.traces),
        lambda: faulty(python, 0.05),
        lambda: faulty(python, 0.30),
    ]
    for part in parts:
        for row in part():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
