"""Histograms of scores per closed bucket, for detectors of the distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.bucket_builder import group_scores

SCORE_CELLS = 64
"""Cells of equal width over the range of a metric: edges are quantiles to within 1.6 % of it."""

_SCORE_GRAIN = 10

MAX_OPEN_BUCKETS = 90
"""Buckets of ten seconds that one service may have open: fifteen minutes. Older ones are lost."""

_SCORE_SLOTS = 96

_MAX_DRAFTED = 1024
"""Fold when so many traces wait: bounds memory."""

_SCORED = ScoreState.SCORED
_SeriesKey = tuple[str, str]


class ScoreHistograms:
    """Counts of the cheap tier's bounded scores, by service, ten seconds and cell.

    Weighted by 1/probability; the sums of weights and of their squares lie behind the cells. A
    bucket is forgotten when it is taken.
    """

    def __init__(self, specs: Mapping[str, MetricSpec]) -> None:
        self._specs = specs
        self._scale: dict[_SeriesKey, tuple[float, float] | None] = {}
        self._open: dict[str, dict[int, dict[_SeriesKey, list[float]]]] = {}
        self._touched: dict[tuple[str, int], None] = {}
        self._drafts: dict[tuple[str, int], list[ScoredTrace]] = {}
        self._drafted = 0

    def edge(self, metric: str, cell: int) -> float:
        """The value at the lower end of a cell."""
        spec = find_spec(self._specs, metric)
        low, high = (spec.low, spec.high or 1.0) if spec else (0.0, 1.0)
        return low + (high - low) * cell / SCORE_CELLS

    def add(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the scores of some traces, which must not be changed afterwards: they are summed
        when somebody reads, a column of scores at a time."""
        for trace in traces:
            place = (trace.service, int(trace.timestamp // _SCORE_GRAIN))
            draft = self._drafts.get(place)
            if draft is None:
                self._drafts[place] = [trace]
                self._touched[place] = None
            else:
                draft.append(trace)
            self._drafted += 1
        if self._drafted >= _MAX_DRAFTED:
            self._fold()

    def _fold(self) -> None:
        drafts, self._drafts, self._drafted = self._drafts, {}, 0
        for (service, index), traces in drafts.items():
            buckets = self._open.setdefault(service, {})
            bucket = buckets.get(index)
            if bucket is None:
                bucket = buckets[index] = {}
                if len(buckets) > MAX_OPEN_BUCKETS:
                    del buckets[min(buckets)]
            for key, scores, _ in group_scores(traces):
                scale = self._scale[key] if key in self._scale else self._scale_of(key)
                if scale is not None:
                    _count(bucket, key, scores, *scale)

    def _scale_of(self, key: _SeriesKey) -> tuple[float, float] | None:
        spec = find_spec(self._specs, key[0])
        found = None
        if spec and spec.kind == "mean" and spec.high is not None and key[1] == "builtin":
            found = (spec.low, SCORE_CELLS / (spec.high - spec.low))
        self._scale[key] = found
        return found

    def take(
        self, service: str, metric: str, scorer: str, width: int, start: float
    ) -> Sequence[float] | None:
        """Weight by cell, then the sum of weights and that of squared weights, of a bucket whose
        width is a multiple of ten seconds; it is forgotten. None where nothing came."""
        self._fold()
        buckets = self._open.get(service, {})
        first = int(start // _SCORE_GRAIN)
        found: list[float] | None = None
        for index in range(first, first + width // _SCORE_GRAIN):
            counts = buckets.get(index, {}).pop((metric, scorer), None)
            if counts is not None:
                found = list(map(add, found, counts)) if found else counts
        return found

    def forget(self, service: str, before: float) -> None:
        """Drop the buckets that everybody has taken."""
        self._fold()
        buckets = self._open.get(service)
        if buckets:
            for index in [i for i in buckets if (i + 1) * _SCORE_GRAIN <= before]:
                del buckets[index]

    def drain(self) -> list[tuple[str, int, Any]]:
        """(service, slot, rows as `dump` has them) of the buckets that `add` changed since the
        last call. Buckets share `SLOTS` slots in turn, so that what is saved has a bound."""
        self._fold()
        out = []
        for service, index in self._touched:
            bucket = self._open.get(service, {}).get(index)
            if bucket:
                rows = [
                    [service, index, metric, scorer, counts]
                    for (metric, scorer), counts in bucket.items()
                ]
                out.append((service, index % _SCORE_SLOTS, rows))
        self._touched.clear()
        return out

    def dump(self) -> list[Any]:
        self._fold()
        return [
            [service, index, metric, scorer, counts]
            for service, buckets in self._open.items()
            for index, bucket in buckets.items()
            for (metric, scorer), counts in bucket.items()
        ]

    def load(self, state: Sequence[Any]) -> None:
        self._open = {}
        for service, index, metric, scorer, counts in state:
            bucket = self._open.setdefault(service, {}).setdefault(index, {})
            bucket[(metric, scorer)] = list(counts)


def _count(
    bucket: dict[_SeriesKey, list[float]],
    key: _SeriesKey,
    scores: Iterable[Score],
    low: float,
    scale: float,
) -> None:
    """Put scores into their cells of a bucket, `scale` cells to the unit from `low` on."""
    counts = bucket.get(key)
    for score in scores:
        value = score.value
        if value is None or score.state is not _SCORED:
            continue
        # not a number, or outside its range: windows leave the first out, too
        place = (value - low) * scale
        if not 0 <= place <= SCORE_CELLS:
            continue
        if counts is None:
            counts = bucket[key] = [0.0] * (SCORE_CELLS + 2)
        w = 1.0 / score.probability if score.probability > 0 else 0.0
        counts[int(place) if place < SCORE_CELLS else SCORE_CELLS - 1] += w
        counts[SCORE_CELLS] += w
        counts[SCORE_CELLS + 1] += w * w
