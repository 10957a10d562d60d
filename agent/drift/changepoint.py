"""Since when: the most likely time of the change behind an alarm, and how sure that is.

With a known level before it, the likelihood ratio of a change at tau is Z**2 / 2, where Z is the
standardised sum of deviations from the baseline since tau. The estimate is the tau with the
largest; the 95 % set holds every tau whose ratio is within `DROP` of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ChangePoint", "Step", "find_change"]

DROP = 3.7
"""Around the true change the log ratio drops like two random walks, each of which exceeds x with
probability at most exp(-x): 1 - (1 - exp(-3.7))**2 = .05."""


class Step(NamedTuple):
    """A bucket: its start, samples, sum of the deviations from the baseline (positive the way that
    the alarm looks), and the variance of that sum."""

    start: float
    n: float
    deviation: float
    variance: float


class ChangePoint(NamedTuple):
    """`since` lies in [earliest, latest]; `shift` is the mean deviation after it, `error` its
    standard error, `n` the samples. `open` says that the change may be older than what is kept."""

    since: float
    earliest: float
    latest: float
    shift: float
    error: float
    n: float
    open: bool


def find_change(steps: Sequence[Step]) -> ChangePoint:
    """`steps` in order of time, at least one."""
    n = deviation = variance = 0.0
    ratios: list[tuple[float, int, float, float, float]] = []
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        n += step.n
        deviation += step.deviation
        variance += step.variance
        ratio = deviation * deviation / (2 * variance) if deviation > 0 and variance > 0 else 0.0
        ratios.append((ratio, i, n, deviation, variance))
    best = max(ratios)
    near = [i for ratio, i, *_ in ratios if ratio >= best[0] - DROP]
    _, at, n, deviation, variance = best
    return ChangePoint(
        since=steps[at].start,
        earliest=steps[min(near)].start,
        latest=steps[max(near)].start,
        shift=deviation / n,
        error=math.sqrt(variance) / n,
        n=n,
        open=min(near) == 0,
    )
