"""Samples to detection on real answers whose generator is swapped, at equal false alarms.

`python -m benchmarks.streams --data DIR [--river-python PATH] [--json]`: DIR holds the development
data; PATH is a Python with river, without which its detectors are left out. One false alarm per
10,000 samples: ours gets the threshold that follows from the promise; "ours, fitted" and all others
one that was fitted to other streams of the same model without a swap. Seeded; prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.streams_data import SIGNALS, SWAPS, Pools, Streams, Swap, draw, pools
from benchmarks.streams_methods import BUCKET, OURS, PLAIN, Method
from benchmarks.streams_report import EVERY, REPEATS, Row, report

__all__ = ["Plan", "compare", "main"]

BASELINE = 7_200
"""Six hours at one trace in three seconds: the least that the agent takes as a baseline."""

LEAD = (1_000, 1_500)


class Plan(NamedTuple):
    """Streams to fit on and as many others to count false alarms on, their length beyond the
    baseline; streams with a swap, and the samples after it within which it must be found."""

    nulls: int = 5
    length: int = 20_000
    swaps: int = 50
    within: int = 2_000


Run = tuple[float, dict[str, list[list[int]]]]
"""(threshold, alarms per stream of each set)"""
Sets = dict[str, Streams]
"""`calibrate` and `null` without a swap, `swapped`; `elsewhere`: without one, answers repeating."""


def _fit(alarms: Sequence[Callable[[float], list[int]]], low: float, high: float, n: int) -> float:
    """The lowest threshold with at most one alarm in EVERY of the n samples."""
    for _ in range(14):
        # thresholds of ours span decades, those of a distance from 0 do not
        middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
        count = sum(len(found(middle)) for found in alarms)
        low, high = (middle, high) if count * EVERY > n else (low, middle)
    return high


def _samples(streams: Streams) -> int:
    return len(streams.x) * (int(streams.x.shape[1]) - streams.baseline)


def _own(method: Method, sets: Sets, h: float | tuple[float, float]) -> Run:
    ready = {name: [method(x, s.baseline) for x in s.x] for name, s in sets.items()}
    fitting = ready.pop("calibrate")
    if isinstance(h, tuple):
        h = _fit(fitting, h[0], h[1], _samples(sets["calibrate"]))
    return h, {name: [found(h) for found in alarms] for name, alarms in ready.items()}


def _rivers(python: str, sets: Sets) -> dict[str, Run]:
    script = Path(__file__).with_name("river_alarms.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.json")
        more = {name: sets[name].x for name in ("elsewhere",) if name in sets}
        np.savez(
            source,
            baseline=BASELINE,
            near=BASELINE + LEAD[0] - 200,
            allowed=_samples(sets["calibrate"]) / EVERY,
            at=np.asarray(sets["swapped"].swap),
            calibrate=sets["calibrate"].x,
            swapped=sets["swapped"].x,
            null=sets["null"].x,
            # numpy's types do not know that more may follow by name
            **more,  # type: ignore[arg-type]
        )
        # -I: our folder has modules of the names of others
        subprocess.run([python, "-I", str(script), str(source), str(target)], check=True)
        found = json.loads(target.read_text(encoding="utf-8"))
    return {name: (r.pop("threshold"), r) for name, r in found.items()}


def _delays(alarms: Sequence[list[int]], swaps: Sequence[int], within: int) -> list[int | None]:
    out: list[int | None] = []
    for found, at in zip(alarms, swaps, strict=True):
        late = [end - at for end in found if at < end <= at + within]
        out.append(late[0] if late else None)
    return out


def _rate(alarms: Sequence[list[int]], length: int) -> float:
    return sum(map(len, alarms)) * EVERY / (len(alarms) * length)


def compare(
    job: tuple[Swap, str, float], known: Pools, plan: Plan, river: str | None = None
) -> list[Row]:
    """Every detector on one swap and signal."""
    swap, signal, repeats = job
    before = known[swap.set, swap.before, signal]
    after = known[swap.set, swap.after, signal]
    name = f"{swap} {signal} {repeats}"
    null = (plan.nulls, BASELINE, plan.length)
    never = (plan.length, plan.length)
    moved = (plan.swaps, BASELINE, LEAD[1] + plan.within)
    sets = {
        "calibrate": draw(before, after, null, never, name + " fitting", repeats),
        "null": draw(before, after, null, never, name + " null", repeats),
        "swapped": draw(before, after, moved, LEAD, name, repeats),
    }
    if repeats == 1.0:
        sets["elsewhere"] = draw(before, after, null, never, name + " elsewhere", REPEATS)
    promised = EVERY / BUCKET
    runs = {
        "ours": _own(OURS[signal], sets, promised),
        "ours, fitted": _own(OURS[signal], sets, (1.0, 10 * promised)),
        **{what: _own(one, sets, (low, high)) for what, (one, low, high) in PLAIN.items()},
        **(_rivers(river, sets) if river else {}),
    }
    print(name, "done", file=sys.stderr, flush=True)
    levels = float(before.mean()), float(after.mean())
    return [
        Row(
            *(*swap, signal, *levels, repeats, what, threshold),
            false_alarms=_rate(found["null"], plan.length),
            elsewhere=_rate(found["elsewhere"], plan.length) if "elsewhere" in found else None,
            delays=_delays(found["swapped"], sets["swapped"].swap, plan.within),
        )
        for what, (threshold, found) in runs.items()
    ]


def _river(path: str | None) -> tuple[str | None, str]:
    """A Python that has river, or why there is none."""
    python = path or sys.executable
    probe = [python, "-I", "-c", "import river.drift"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError as error:
        return None, str(error)
    lines = done.stderr.strip().splitlines()
    return (python, "") if done.returncode == 0 else (None, lines[-1] if lines else "it failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--river-python")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--swaps", type=int, default=Plan().swaps, help="streams per swap")
    options = parser.parse_args()
    river, why = _river(options.river_python)
    if river is None:
        print(f"ADWIN, KSWIN and Page-Hinkley are left out: {why}", file=sys.stderr)
    plan = Plan(swaps=options.swaps)
    jobs = [(swap, signal, 1.0) for signal in SIGNALS for swap in SWAPS]
    # every second one again: each job takes half a minute
    jobs += [(swap, signal, REPEATS) for swap in SWAPS[1::2] for signal in SIGNALS]
    work = partial(compare, known=pools(options.data), plan=plan, river=river)
    lines = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for line in pool.map(work, jobs):
            lines.append(line)
            if options.json:
                print("\n".join(json.dumps(asdict(r)) for r in line), flush=True)
    if not options.json:
        print(report(lines, plan.within))


if __name__ == "__main__":
    main()
