"""Histograms of scores per closed bucket, for detectors of the distribution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add

from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.bucket_builder import group_scores
from ragmeter.windows.buckets import SeriesKey

# Cells of equal width over the range of a metric: edges are quantiles to within 1.6 % of it.
SCORE_CELLS = 64

# Seconds of a bucket.
_SCORE_GRAIN = 10

# Buckets that one service may have open: fifteen minutes. Older ones are lost.
MAX_OPEN_BUCKETS = 90

# Buckets are saved in so many slots in turn, which bounds the saved state.
_SCORE_SLOTS = 96

# Fold when so many traces wait: bounds memory.
_MAX_PENDING = 1024

_SCORED = ScoreState.SCORED
ScoreRow = tuple[str, int, str, str, list[float]]
"""Service, index of a bucket, metric, scorer and counts, as they are saved."""

_Buckets = dict[int, dict[SeriesKey, list[float]]]


class ScoreHistograms:
    """Counts of the cheap tier's bounded scores by service, ten seconds and cell.

    Counts are weighted by 1/probability; after the cells come the sum of weights and that of their
    squares. A histogram is removed when it is taken.

    Args:
        specs: Metric specs by base name.
    """

    def __init__(self, specs: Mapping[str, MetricSpec]) -> None:
        self._specs = specs
        self._scales: dict[SeriesKey, tuple[float, float] | None] = {}
        self._open: dict[str, _Buckets] = {}
        self._touched: dict[tuple[str, int], None] = {}
        self._pending: dict[tuple[str, int], list[ScoredTrace]] = {}
        self._pending_count = 0

    def edge(self, metric: str, cell: int) -> float:
        """Return the value at the lower end of a cell."""
        spec = find_spec(self._specs, metric)
        low, high = (spec.low, spec.high or 1.0) if spec else (0.0, 1.0)
        return low + (high - low) * cell / SCORE_CELLS

    def add(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the scores of traces at the next reading; they must not be changed afterwards."""
        for trace in traces:
            key = (trace.service, int(trace.timestamp // _SCORE_GRAIN))
            pending = self._pending.get(key)
            if pending is None:
                self._pending[key] = [trace]
                self._touched[key] = None
            else:
                pending.append(trace)
            self._pending_count += 1
        if self._pending_count >= _MAX_PENDING:
            self._fold()

    def _fold(self) -> None:
        pending = self._pending
        self._pending = {}
        self._pending_count = 0
        for (service, index), traces in pending.items():
            buckets = self._open.setdefault(service, {})
            bucket = buckets.get(index)
            if bucket is None:
                bucket = buckets[index] = {}
                if len(buckets) > MAX_OPEN_BUCKETS:
                    del buckets[min(buckets)]
            for key, scores, _ in group_scores(traces):
                scale = self._scales[key] if key in self._scales else self._find_scale(key)
                if scale is not None:
                    _count_scores(bucket, key, scores, *scale)

    def _find_scale(self, key: SeriesKey) -> tuple[float, float] | None:
        """Return (low, cells per unit), None for a series without histograms."""
        spec = find_spec(self._specs, key[0])
        scale = None
        if spec and spec.kind == "mean" and spec.high is not None and key[1] == "builtin":
            scale = (spec.low, SCORE_CELLS / (spec.high - spec.low))
        self._scales[key] = scale
        return scale

    def take(
        self, service: str, metric: str, scorer: str, width: int, start: float
    ) -> Sequence[float] | None:
        """Remove and return the histogram of [start, start + width); `width` is a multiple of 10 s.

        Returns:
            Weight by cell, then the sum of weights and that of squared weights; None without any.
        """
        self._fold()
        buckets = self._open.get(service, {})
        first = int(start // _SCORE_GRAIN)
        total: list[float] | None = None
        for index in range(first, first + width // _SCORE_GRAIN):
            counts = buckets.get(index, {}).pop((metric, scorer), None)
            if counts is not None:
                total = list(map(add, total, counts)) if total else counts
        return total

    def forget(self, service: str, before: float) -> None:
        """Drop the buckets of a service that end by `before` (Unix seconds)."""
        self._fold()
        buckets = self._open.get(service)
        if buckets:
            for index in [i for i in buckets if (i + 1) * _SCORE_GRAIN <= before]:
                del buckets[index]

    def drain(self) -> list[tuple[str, int, list[ScoreRow]]]:
        """Return (service, slot, rows as in `dump`) of buckets that changed since the last call."""
        self._fold()
        touched, self._touched = self._touched, {}
        return [
            (service, index % _SCORE_SLOTS, list(_rows(service, index, bucket)))
            for service, index in touched
            if (bucket := self._open.get(service, {}).get(index))
        ]

    def dump(self) -> list[ScoreRow]:
        """Return the rows of all open buckets."""
        self._fold()
        return [
            row
            for service, buckets in self._open.items()
            for index, bucket in buckets.items()
            for row in _rows(service, index, bucket)
        ]

    def load(self, state: Iterable[ScoreRow]) -> None:
        """Restore rows that `dump` or `drain` returned."""
        self._open = {}
        for service, index, metric, scorer, counts in state:
            bucket = self._open.setdefault(service, {}).setdefault(index, {})
            bucket[(metric, scorer)] = list(counts)


def _rows(service: str, index: int, bucket: Mapping[SeriesKey, list[float]]) -> Iterator[ScoreRow]:
    return ((service, index, *key, counts) for key, counts in bucket.items())


def _count_scores(
    bucket: dict[SeriesKey, list[float]],
    key: SeriesKey,
    scores: Iterable[Score],
    low: float,
    scale: float,
) -> None:
    """Count scores in the cells of a bucket, `scale` cells to the unit from `low` on."""
    counts = bucket.get(key)
    for score in scores:
        value = score.value
        if value is None or score.state is not _SCORED:
            continue
        position = (value - low) * scale
        if not 0 <= position <= SCORE_CELLS:  # NaN, or outside the range; windows skip NaN, too
            continue
        if counts is None:
            counts = bucket[key] = [0.0] * (SCORE_CELLS + 2)
        w = 1.0 / score.probability if score.probability > 0 else 0.0
        counts[int(position) if position < SCORE_CELLS else SCORE_CELLS - 1] += w
        counts[SCORE_CELLS] += w
        counts[SCORE_CELLS + 1] += w * w
