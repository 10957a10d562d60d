"""The estimates that windows return, and the resolution of a scorer's name to its series and sums.

Each version of a scorer has a series of its own, named `scorer@version`, of which one is current.
Results that no version gave (sampled out, failed, or known in advance) and the strata of all
traces are summed under the scorer's plain name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.windows.buckets import Bucket, SeriesKey, SeriesSlots, WindowTotal
from ragmeter.windows.estimators import widen_for_missing
from ragmeter.windows.failures import FailedShare, estimate_failed_share
from ragmeter.windows.intervals import (
    assisted_scorer,
    estimate_interval,
    is_assisted,
    is_sampled,
    unassisted_scorer,
)
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import STATE_NAMES, ScoreSums

_QUANTILES = (0.5, 0.95, 0.99)

# (low, high) of a metric without a spec.
_UNBOUNDED: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A 95 % interval of a mean over all traffic.

    `effective_samples` is the number of equal-weight samples that carry as much information,
    `samples` the number of scored traces; `states` counts all traces by state. `unscored` is the
    weighted share (0..1) of values that should exist and do not: `value` is of the others, `lower`
    and `upper` hold whatever the missing values are.
    """

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    states: Mapping[str, int]
    unscored: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantile:
    """A latency quantile in seconds, within 1 %; a limit is None if samples do not support it."""

    quantile: float
    value: float
    lower: float | None
    upper: float | None
    samples: int


class SeriesResolver:
    """Maps names of scorers to stored series and their sums.

    `current` maps (metric, scorer) to the scorer's newest series; the owner may replace it.

    Args:
        slots: Offsets of the stored series.
    """

    def __init__(self, slots: SeriesSlots) -> None:
        self._slots = slots
        self.current: Mapping[SeriesKey, str] = {}

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the series that a scorer's name stands for: its newest version, if it has one."""
        plain = unassisted_scorer(scorer)
        series = self.current.get((metric, plain), plain)
        return assisted_scorer(series) if is_assisted(scorer) else series

    def cache_key(self, metric: str, scorer: str) -> tuple[str, str, str]:
        """Return all that `cell` depends on besides the sums: (metric, scorer, current series)."""
        return metric, scorer, self.current.get((metric, unassisted_scorer(scorer)), scorer)

    def series_of(self, total: WindowTotal) -> list[SeriesKey]:
        """Return (metric, scorer) of every series; the current one goes by the scorer's name."""
        cache_key = ("series", *self.current.items())
        cached: list[SeriesKey] | None = total.cache.get(cache_key)
        if cached is None:
            cached = total.cache[cache_key] = list(self._find_series(total))
        return list(cached)

    def _find_series(self, total: WindowTotal) -> dict[SeriesKey, None]:
        names = {
            (metric, series): (metric, name) for (metric, name), series in self.current.items()
        }
        keys: dict[SeriesKey, None] = {}
        for key, cell in total.cells(self._slots):
            if not (cell.scored or any(cell.states().values())):
                continue  # traces of a scorer whose versions have series of their own
            name = names.get(key, key)
            keys[name] = None
            if cell.strata and cell.scored and cell.has_cheap and not is_sampled(cell):
                keys[name[0], assisted_scorer(name[1])] = None
        return keys

    def cell(self, sums: WindowTotal | Bucket | None, metric: str, scorer: str) -> ScoreSums | None:
        """Return the sums of one series in a total or bucket, None without any."""
        return None if sums is None else self.sum_cells([sums], metric, scorer)

    def sum_cells(
        self, sums: Sequence[WindowTotal | Bucket], metric: str, scorer: str
    ) -> ScoreSums | None:
        """Add up the sums of one series over totals or buckets, None without any.

        A scorer's plain name stands for the current version with what no version gave, that of a
        version for its own results with the strata of all traces.
        """
        scorer = unassisted_scorer(scorer)
        name, _, version = scorer.partition("@")
        plain = self._stored_cell(sums, metric, name)
        if version:
            cell = self._stored_cell(sums, metric, scorer)
            return cell.join_traffic(plain) if cell else None
        series = self.current.get((metric, name), name)
        current = self._stored_cell(sums, metric, series) if series != name else None
        if plain is None or current is None:
            return plain or current
        return ScoreSums.total((plain, current))

    def _stored_cell(
        self, sums: Sequence[WindowTotal | Bucket], metric: str, scorer: str
    ) -> ScoreSums | None:
        offset = self._slots.find((metric, scorer))
        if offset is None:
            return None
        cells = [cell for part in sums if (cell := part.cell(offset)) is not None]
        return cells[0] if len(cells) == 1 else ScoreSums.total(cells) if cells else None


class SeriesEstimator:
    """Estimates of series from window totals, cached in the totals.

    Args:
        resolver: Resolves names of scorers.
        specs: Metric specs by base name; a metric without one is an unbounded mean.
        min_samples: Estimates need at least so many samples.
    """

    def __init__(
        self, resolver: SeriesResolver, specs: Mapping[str, MetricSpec], min_samples: int
    ) -> None:
        self._resolver = resolver
        self._min_samples = min_samples
        self._bounds: dict[str, tuple[float | None, float | None]] = {
            name: (0.0, 1.0) if spec.kind == "ratio" else (spec.low, spec.high)
            for name, spec in specs.items()
        }

    def states(self, total: WindowTotal | None, metric: str, scorer: str) -> dict[str, int]:
        """Return the number of traces by state; all zero for an unknown series."""
        scorer = unassisted_scorer(scorer)
        key = self._resolver.cache_key(metric, scorer)
        cached: Estimate | None = total.cache.get(key) if total else None
        if cached is not None:
            return dict(cached.states)
        cell = self._resolver.cell(total, metric, scorer)
        return cell.states() if cell else dict.fromkeys(STATE_NAMES, 0)

    def estimate(self, total: WindowTotal, metric: str, scorer: str) -> Estimate | None:
        """Estimate a series of `total`; None with fewer than `min_samples` scored traces."""
        key = self._resolver.cache_key(metric, scorer)
        if key not in total.cache:
            cell = self._cell(total, metric, scorer)
            enough = cell is not None and cell.scored >= self._min_samples
            total.cache[key] = self.interval(cell, metric, scorer) if cell and enough else None
        estimate: Estimate | None = total.cache[key]
        return estimate

    def _cell(self, total: WindowTotal, metric: str, scorer: str) -> ScoreSums | None:
        key = (
            "cell",
            metric,
            unassisted_scorer(scorer),
            self._resolver.current.get((metric, scorer)),
        )
        if key not in total.cache:
            total.cache[key] = self._resolver.cell(total, metric, scorer)
        cell: ScoreSums | None = total.cache[key]
        return cell

    def interval(self, cell: ScoreSums, metric: str, scorer: str) -> Estimate | None:
        """Estimate a series from its sums; None without a scored trace."""
        samples = cell.scored
        if not samples:
            return None
        bounds = self._bounds.get(base_name(metric), _UNBOUNDED)
        missing = 0.0
        interval = estimate_interval(cell, *bounds, is_assisted(scorer))
        if cell.unscored or cell.shed:
            missing = cell.unscored_share() or 0.0
            interval = widen_for_missing(interval, missing, *bounds)
        return Estimate(*interval, samples, cell.states(), missing)

    def unscored(self, total: WindowTotal, metric: str, scorer: str) -> tuple[float, int] | None:
        """Return what `Windows.unscored` returns."""
        key = ("unscored", *self._resolver.cache_key(metric, unassisted_scorer(scorer)))
        cached: tuple[float, int] | None = total.cache.get(key)
        if cached is None:
            cell = self._cell(total, metric, scorer)
            number = cell.scored + cell.unscored + cell.shed if cell else 0
            share = cell.unscored_share() if cell else None
            cached = total.cache[key] = (share or 0.0, number)
        return cached if cached[1] >= self._min_samples else None

    def failed(self, total: WindowTotal, metric: str, scorer: str) -> FailedShare | None:
        """Estimate the part of `unscored` that is a fault of ours; None as there."""
        scorer = unassisted_scorer(scorer)
        key = ("failed", *self._resolver.cache_key(metric, scorer))
        if key not in total.cache:
            cell = self._resolver.cell(total, metric, scorer)
            reasons = _failure_reasons(total, metric, scorer)
            total.cache[key] = estimate_failed_share(cell, reasons) if cell else None
        share: FailedShare | None = total.cache[key]
        return share if share and share.samples >= self._min_samples else None

    def failed_before(
        self,
        cell: ScoreSums,
        past: WindowTotal,
        total: WindowTotal | None,
        metric: str,
        scorer: str,
    ) -> FailedShare | None:
        """Estimate the failures in `past` that are not in `total`; `cell` has their sums."""
        reasons = Counter(_failure_reasons(past, metric, scorer))
        reasons -= Counter(_failure_reasons(total, metric, scorer))
        return estimate_failed_share(cell, reasons)

    def quantiles(self, total: WindowTotal, stage: str) -> list[Quantile]:
        """Return those of the 50th, 95th and 99th percentile that have a sample beyond them."""
        hist = total.sketches.get(stage)
        if hist is None or hist.n < self._min_samples:
            return []
        cached: list[Quantile] | None = total.cache.get(stage)
        if cached is None:
            cached = [Quantile(*limits, hist.n) for limits in hist.limits(_QUANTILES)]
            total.cache[stage] = cached
        return list(cached)

    def latency(self, buckets: Sequence[Bucket], stage: str) -> Estimate | None:
        """Estimate the 95th percentile of buckets; None if an end of its interval is unknown."""
        hist = LogHistogram()
        for bucket in buckets:
            if stage in bucket.sketches:
                hist.merge_sketch(bucket.sketches[stage])
        for _, value, lower, upper in hist.limits((0.95,)) if hist.n else ():
            if upper is not None:
                return Estimate(value, lower, upper, hist.n, hist.n, {})
        return None


def _failure_reasons(total: WindowTotal | None, metric: str, scorer: str) -> Mapping[str, int]:
    failures = (total.failures if total else None) or {}
    return failures.get((metric, scorer.partition("@")[0]), {})
