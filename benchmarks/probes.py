"""How surely the alarm for judge drift goes off: exact probabilities for the bundled probes.

Run with `python -m benchmarks.probes`. The model: in one run each verdict is not as in the first
run with probability x, independently. `judge_probe_change` is the mean over probes of the share of
verdicts that changed; the alarm is on while it is above the threshold. A verdict counts once for
its probe, so the plain binomial over all verdicts is close but not exact; this is exact.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from ragmeter.scorers.judge.probes import load_probes
from ragmeter.trace import Trace

__all__ = ["main", "probability_above", "sizes", "verdicts_of"]

THRESHOLDS = (0.03, 0.05, 0.1)
FLIPS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.08, 0.1, 0.15, 0.2)


def verdicts_of(trace: Trace) -> int:
    """Verdicts that a probe brings: one a passage, one on the answer, one a marker."""
    return len(trace.passages or []) + 1 + (trace.answer or "").count("[")


def sizes() -> list[int]:
    """Verdicts of each bundled probe."""
    return [verdicts_of(probe.trace) for probe in load_probes().probes]


def probability_above(threshold: float, flip: float, counts: Sequence[int]) -> float:
    """That the mean share of changed verdicts is above `threshold`, by convolution over probes
    on a grid that holds every share."""
    unit = math.lcm(*counts)
    total = [1.0]
    for n in counts:
        own = [math.comb(n, k) * flip**k * (1 - flip) ** (n - k) for k in range(n + 1)]
        new = [0.0] * (len(total) + unit)
        for at, p in enumerate(total):
            if p > 1e-18:
                for k, q in enumerate(own):
                    new[at + k * unit // n] += p * q
        total = new
    limit = threshold * unit * len(counts) * (1 + 1e-12)
    return sum(p for at, p in enumerate(total) if at > limit)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    counts = sizes()
    print(f"{len(counts)} probes, {sum(counts)} verdicts\n")
    print("| verdicts flip at random | " + " | ".join(f"above {t}" for t in THRESHOLDS) + " |")
    print("| ---: |" + " ---: |" * len(THRESHOLDS))
    for flip in FLIPS:
        cells = [f"{probability_above(t, flip, counts):.2g}" for t in THRESHOLDS]
        print(f"| {flip:.1%} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
