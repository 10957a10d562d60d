"""The drift detectors that `benchmarks.streams` compares, all from samples to alarms.

A method takes one stream and returns what a threshold turns into alarms, so that finding the
threshold does not repeat the work. River's are in `river_alarms`, which runs apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ragmeter.drift.baseline import HOUR, MINUTE, Baseline, BaselineLearner
from ragmeter.drift.detectors import DriftStream, ScorePart
from ragmeter.drift.score_histograms import SCORE_CELLS
from ragmeter.drift.series_monitors import SharesMonitor

from training.devdata import Floats

__all__ = ["BUCKET", "OURS", "PLAIN", "Alarms", "Method"]

BUCKET = 20
"""Samples in a minute: one trace in three seconds."""

Alarms = Callable[[float], list[int]]
"""Threshold -> how many samples had been seen at each alarm."""
Method = Callable[[Floats, int], Alarms]
"""(stream, samples of its baseline) -> alarms after the baseline"""


def _baseline(sums: Floats, squares: Floats, skip: int) -> Baseline:
    learner = BaselineLearner(MINUTE)
    for i, (total, square) in enumerate(zip(sums.tolist(), squares.tolist(), strict=True), skip):
        learner.add(float(i * MINUTE), float(BUCKET), total, square)
    found = learner.freeze(1, 1)
    assert found is not None
    return found


def _buckets(x: Floats) -> Floats:
    return x[: len(x) // BUCKET * BUCKET].reshape(-1, BUCKET)


_Part = tuple[DriftStream, Floats, Floats]
"""A detector, and by bucket the sums of its statistics and their squares"""


def _restarting(parts: list[_Part], first: int) -> Alarms:
    """Several detectors, each with an equal part of the allowance: the threshold of one alone,
    times how many there are. All restart after an alarm. Thresholds count buckets."""
    streams = [stream for stream, _, _ in parts]
    rows = [
        [
            [[ScorePart(float(BUCKET), *sums)] for sums in zip(*bucket, strict=True)]
            for bucket in zip(totals.tolist(), squares.tolist(), strict=True)
        ]
        for _, totals, squares in parts
    ]

    def alarms(h: float) -> list[int]:
        out = []
        limit = h * len(streams) * MINUTE
        for stream in streams:
            stream.restart()
        for i in range(len(rows[0])):
            start = float((first + i) * MINUTE)
            steps = zip(streams, rows, strict=True)
            if max([stream.add(start, MINUTE, own[i]) for stream, own in steps]) >= limit:
                out.append((first + i + 1) * BUCKET)
                for stream in streams:
                    stream.restart()
        return out

    return alarms


def _mean(x: Floats, baseline: int) -> _Part:
    b, known = _buckets(x), baseline // BUCKET
    sums, squares = b.sum(1), (b * b).sum(1)
    stream = DriftStream([_baseline(sums[:known], squares[:known], 0)])
    return stream, sums[known:, None], squares[known:, None]


def _shares(x: Floats, baseline: int) -> _Part:
    """As the agent does: an hour for the edges, the rest of the baseline for the shares."""
    known, hour = baseline // BUCKET, HOUR // MINUTE
    cells = np.minimum((_buckets(1.0 - x) * SCORE_CELLS).astype(int), SCORE_CELLS - 1)
    monitor = SharesMonitor("", "grounding", "builtin")
    for row in cells[:hour]:
        counts = np.bincount(row, minlength=SCORE_CELLS).astype(float).tolist()
        monitor._choose_edges(counts, float(BUCKET), float(BUCKET))
    above = np.stack([(cells >= edge).sum(1) for edge in monitor.edges], 1).astype(float)
    learned = [_baseline(column, column, hour) for column in above[hour:known].T]
    return DriftStream(learned, 1, True), above[known:], above[known:]


def _ours(*parts: Callable[[Floats, int], _Part]) -> Method:
    def method(x: Floats, baseline: int) -> Alarms:
        return _restarting([part(x, baseline) for part in parts], baseline // BUCKET)

    return method


def _crossings(statistic: Floats, ends: Floats, quiet: int) -> Alarms:
    """Alarms where a statistic is at or above the threshold; after one the window fills anew."""

    def alarms(h: float) -> list[int]:
        out: list[int] = []
        for end in ends[statistic >= h].tolist():
            if not out or end >= out[-1] + quiet:
                out.append(int(end))
        return out

    return alarms


def _roll(x: Floats, k: int) -> Floats:
    c = np.cumsum(np.concatenate([np.zeros((1, *x.shape[1:])), x]), 0)
    return np.asarray(c[k:] - c[:-k])


def _window_mean(size: int) -> Method:
    """Mean of the last samples over that of the baseline, at every sample."""

    def method(x: Floats, baseline: int) -> Alarms:
        means = _roll(x[baseline:], size) / size - x[:baseline].mean()
        return _crossings(means, np.arange(baseline + size, len(x) + 1, dtype=float), size)

    return method


def _histograms(x: Floats, edges: Floats, baseline: int, size: int) -> tuple[Floats, Floats]:
    """Counts by cell of the baseline, and of the last samples at the end of every bucket."""
    place = np.searchsorted(edges, x, side="right")
    known = np.bincount(place[:baseline], minlength=len(edges) + 1).astype(float)
    rows = np.zeros(((len(x) - baseline) // BUCKET, len(edges) + 1))
    late = place[baseline : baseline + len(rows) * BUCKET]
    np.add.at(rows, (np.arange(len(late)) // BUCKET, late), 1.0)
    return known, _roll(rows, size // BUCKET)


def _ends(baseline: int, size: int, count: int) -> Floats:
    return baseline + size + BUCKET * np.arange(count, dtype=float)


def _ks(size: int) -> Method:
    """Kolmogorov-Smirnov distance of the last samples from the baseline, once a bucket."""

    def method(x: Floats, baseline: int) -> Alarms:
        known, late = _histograms(x, np.unique(x[:baseline]), baseline, size)
        distance = np.abs(np.cumsum(late, 1) / size - np.cumsum(known) / baseline).max(1)
        return _crossings(distance, _ends(baseline, size, len(late)), size)

    return method


def _psi(size: int) -> Method:
    """Population stability index of the same windows, ten bins of equal share."""

    def method(x: Floats, baseline: int) -> Alarms:
        edges = np.unique(np.quantile(x[:baseline], np.arange(1, 10) / 10))
        if len(edges) == 1 or len(np.unique(x[:baseline])) == 2:
            edges = np.array([0.5])  # labels
        known, late = _histograms(x, edges, baseline, size)
        bins = len(known)
        p, q = (known + 0.5) / (baseline + bins / 2), (late + 0.5) / (size + bins / 2)
        index = ((q - p) * np.log(q / p)).sum(1)
        return _crossings(index, _ends(baseline, size, len(late)), size)

    return method


OURS = {"label": _ours(_mean), "score": _ours(_mean, _shares)}
"""What the agent runs on each signal: a rate has no distribution to watch."""

PLAIN: dict[str, tuple[Method, float, float]] = {
    "mean of 100": (_window_mean(100), 0.0, 1.0),
    "mean of 500": (_window_mean(500), 0.0, 1.0),
    "KS 200": (_ks(200), 0.0, 1.0),
    "KS 500": (_ks(500), 0.0, 1.0),
    "PSI 200": (_psi(200), 0.0, 10.0),
    "PSI 500": (_psi(500), 0.0, 10.0),
}
"""Method and the range in which its threshold lies."""
