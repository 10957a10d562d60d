"""The estimates that windows return, and the resolution of a scorer's name to its series and sums.

Each version of a scorer has a series of its own, named `scorer@version`, of which one is current.
Results that no version gave (sampled out, failed, or known in advance) and the strata of all
traces are summed under the scorer's plain name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragmeter.windows.buckets import Bucket, SeriesKey, SeriesSlots, WindowTotal
from ragmeter.windows.sums import ScoreSums


class Estimate(NamedTuple):
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


class Quantile(NamedTuple):
    """A latency quantile in seconds, within 1 %; a limit is None if samples do not support it."""

    quantile: float
    value: float
    lower: float | None
    upper: float | None
    samples: int


class SeriesResolver:
    """Maps names of scorers to stored series and their sums.

    Args:
        slots: Offsets of the stored series.
        current: The newest series of a scorer by (metric, scorer); the owner may change it.
    """

    def __init__(self, slots: SeriesSlots, current: Mapping[SeriesKey, str]) -> None:
        self._slots = slots
        self.current = current

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the series that a scorer's name stands for: its newest version, if it has one."""
        return self.current.get((metric, scorer), scorer)

    def cache_key(self, metric: str, scorer: str) -> tuple[str, str, str]:
        """Return all that an estimate depends on besides the sums: (metric, scorer, series)."""
        return metric, scorer, self.current_scorer(metric, scorer)

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
            keys[names.get(key, key)] = None
        return keys

    def cell(self, total: WindowTotal | None, metric: str, scorer: str) -> ScoreSums | None:
        """Return the sums of one series in a total, None without any."""
        if total is None:
            return None
        key = ("cell", *self.cache_key(metric, scorer))
        if key not in total.cache:
            total.cache[key] = self.sum_cells([total], metric, scorer)
        cell: ScoreSums | None = total.cache[key]
        return cell

    def sum_cells(
        self, sums: Sequence[WindowTotal | Bucket], metric: str, scorer: str
    ) -> ScoreSums | None:
        """Add up the sums of one series over totals or buckets, None without any.

        A scorer's plain name stands for the current version with what no version gave, that of a
        version for its own results with the strata of all traces.
        """
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
        if not cells:
            return None
        return cells[0] if len(cells) == 1 else ScoreSums.total(cells)
