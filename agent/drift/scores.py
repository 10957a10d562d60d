"""Histograms of scores per closed bucket: what the windows' sums cannot tell of a distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any

from agent.metrics.names import spec_of
from agent.metrics.spec import MetricSpec
from agent.trace import Score, ScoredTrace, State
from agent.windows.draft import columns

__all__ = ["CELLS", "GRAIN", "SLOTS", "ScoreCells"]

CELLS = 64
"""Cells of equal width over the range of a metric: edges are quantiles to within 1.6 % of it."""

GRAIN = 10

OPEN = 90
"""Buckets of ten seconds that one service may have open: fifteen minutes. Older ones are lost."""

SLOTS = 96

MAX_DRAFTED = 1024
"""Fold when so many traces wait: bounds memory."""

_SCORED = State.SCORED
_Series = tuple[str, str]


class ScoreCells:
    """Counts of the cheap tier's bounded scores, by service, ten seconds and cell.

    Weighted by 1/probability; the sums of weights and of their squares lie behind the cells. A
    bucket is forgotten when it is taken.
    """

    def __init__(self, specs: Mapping[str, MetricSpec]) -> None:
        self._specs = specs
        self._scale: dict[_Series, tuple[float, float] | None] = {}
        self._open: dict[str, dict[int, dict[_Series, list[float]]]] = {}
        self._touched: dict[tuple[str, int], None] = {}
        self._drafts: dict[tuple[str, int], list[ScoredTrace]] = {}
        self._drafted = 0

    def edge(self, metric: str, cell: int) -> float:
        """The value at the lower end of a cell."""
        spec = spec_of(self._specs, metric)
        low, high = (spec.low, spec.high or 1.0) if spec else (0.0, 1.0)
        return low + (high - low) * cell / CELLS

    def add(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the scores of some traces, which must not be changed afterwards: they are summed
        when somebody reads, a column of scores at a time."""
        for trace in traces:
            place = (trace.service, int(trace.timestamp // GRAIN))
            draft = self._drafts.get(place)
            if draft is None:
                self._drafts[place] = [trace]
                self._touched[place] = None
            else:
                draft.append(trace)
            self._drafted += 1
        if self._drafted >= MAX_DRAFTED:
            self._fold()

    def _fold(self) -> None:
        drafts, self._drafts, self._drafted = self._drafts, {}, 0
        for (service, index), traces in drafts.items():
            buckets = self._open.setdefault(service, {})
            bucket = buckets.get(index)
            if bucket is None:
                bucket = buckets[index] = {}
                if len(buckets) > OPEN:
                    del buckets[min(buckets)]
            for key, scores, _ in columns(traces):
                scale = self._scale[key] if key in self._scale else self._scale_of(key)
                if scale is not None:
                    _count(bucket, key, scores, *scale)

    def _scale_of(self, key: _Series) -> tuple[float, float] | None:
        spec = spec_of(self._specs, key[0])
        found = None
        if spec and spec.kind == "mean" and spec.high is not None and key[1] == "builtin":
            found = (spec.low, CELLS / (spec.high - spec.low))
        self._scale[key] = found
        return found

    def take(
        self, service: str, metric: str, scorer: str, width: int, start: float
    ) -> Sequence[float] | None:
        """Weight by cell, then the sum of weights and that of squared weights, of a bucket whose
        width is a multiple of ten seconds; it is forgotten. None where nothing came."""
        self._fold()
        buckets = self._open.get(service, {})
        first = int(start // GRAIN)
        found: list[float] | None = None
        for index in range(first, first + width // GRAIN):
            counts = buckets.get(index, {}).pop((metric, scorer), None)
            if counts is not None:
                found = list(map(add, found, counts)) if found else counts
        return found

    def forget(self, service: str, before: float) -> None:
        """Drop the buckets that everybody has taken."""
        self._fold()
        buckets = self._open.get(service)
        if buckets:
            for index in [i for i in buckets if (i + 1) * GRAIN <= before]:
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
                out.append((service, index % SLOTS, rows))
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
    bucket: dict[_Series, list[float]],
    key: _Series,
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
        if not 0 <= place <= CELLS:
            continue
        if counts is None:
            counts = bucket[key] = [0.0] * (CELLS + 2)
        w = 1.0 / score.probability if score.probability > 0 else 0.0
        counts[int(place) if place < CELLS else CELLS - 1] += w
        counts[CELLS] += w
        counts[CELLS + 1] += w * w
