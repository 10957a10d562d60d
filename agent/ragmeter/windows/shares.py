"""Shares that are no score, as the sums of one."""

from __future__ import annotations

from math import isfinite

from ragmeter.core.arithmetic import VALUE_ONE
from ragmeter.windows.log_histogram import LogHistogram, cell_index
from ragmeter.windows.sums import ScoreSums


def share_sums(share: float, n: float) -> ScoreSums:
    """Return the sums of `n` samples, a `share` (0..1) of them 1: for shares that are no score."""
    number = round(n)
    hits = min(number, round(share * n))  # a segment of estimated size may exceed the whole
    return ScoreSums([0, 0, 0, 0, number, hits * VALUE_ONE, hits * VALUE_ONE * VALUE_ONE], None)


def share_above(hist: LogHistogram | None, edge: float) -> ScoreSums | None:
    """Return the share of a histogram's values above `edge` (seconds); None without values."""
    if hist is None or not hist.n or not isfinite(edge):
        return None
    total = sum(hist.counts)
    above = sum(hist.counts[cell_index(max(edge, 0.0)) + 1 :])
    return share_sums(above / total, total * total / hist.w2)
