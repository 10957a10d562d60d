"""The estimates that windows return, and the resolution of a scorer name to its series and sums.

Which sums the windows hold, by service, segment, series, and window or bucket. The estimates
that are made of them are in `windows`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.windows.buckets import Bucket, SeriesKey, WindowTotal
from ragmeter.windows.intervals import assisted_scorer, is_assisted, unassisted_scorer
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.state import WindowState
from ragmeter.windows.sums import ScoreSums


@dataclass(frozen=True, slots=True)
class Estimate:
    """A 95 % interval, with how many equal-weight samples would know as much.

    `samples` were scored; `states` counts all traces by state, and its sum is what was seen.
    `unscored` is the weighted share of what should have a value and has none: `lower` and `upper`
    hold whatever those values are, `value` is of those that are there.
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
    """Seconds, within 1 %. A limit is None where the samples do not carry it."""

    quantile: float
    value: float
    lower: float | None
    upper: float | None
    samples: int


class WindowSums(WindowState):
    """Reading the sums of a series by the name of its scorer, whatever versions that has had."""

    def __init__(
        self,
        windows: Sequence[str],
        specs: Mapping[str, MetricSpec],
        name_worst: bool,
        worst_of: Collection[str] = (),
    ) -> None:
        super().__init__(windows, specs, name_worst, worst_of)
        self.current: Mapping[SeriesKey, str] = {}
        """By (metric, scorer): the scorer's newest series, where each version of an instrument has
        one of its own. Readers that ask for the scorer get that one, with what has no version."""

    def services(self) -> list[str]:
        """Services with a trace in the longest window."""
        self._fold()
        return sorted(service for service, segment in self._longest.totals if not segment)

    def segments(self, service: str) -> list[str]:
        """Segments of a service with a trace in the longest window, without ""."""
        self._fold()
        return sorted(seg for name, seg in self._longest.totals if name == service and seg)

    def series(self, service: str, segment: str = "") -> list[SeriesKey]:
        """(metric, scorer) seen in the longest window. Of a scorer with several series the current
        one goes by the scorer's name, the older ones by their own."""
        total = self._total(service, segment, self._longest.name)
        if total is None:
            return []
        names = {series: pair for pair, series in self._current_keys()}
        found: dict[SeriesKey, None] = {}
        for key, cell in total.cells(self._slots):
            if not any(cell.states().values()):
                continue  # traces of a scorer whose versions have series of their own
            name = names.get(key, key)
            found[name] = None
            if cell.scored and cell.has_cheap:
                found[name[0], assisted_scorer(name[1])] = None
        return list(found)

    def current_scorer(self, metric: str, scorer: str) -> str:
        """The series that a scorer's name stands for: its newest version, where it has versions."""
        plain = unassisted_scorer(scorer)
        series = self.current.get((metric, plain), plain)
        return assisted_scorer(series) if is_assisted(scorer) else series

    def _current_keys(self) -> Iterator[tuple[SeriesKey, SeriesKey]]:
        for pair, scorer in self.current.items():
            yield pair, (pair[0], scorer)

    def stages(self, service: str, segment: str = "") -> list[str]:
        """Latency stages seen in the longest window."""
        total = self._total(service, segment, self._longest.name)
        return sorted(total.sketches) if total else []

    def count_traces(self, service: str, segment: str, window: str) -> int:
        """Traces in the window."""
        total = self._total(service, segment, window)
        return total.seen if total else 0

    def cell(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None:
        """The sums of a window."""
        return self._cell(self._total(service, segment, window), metric, scorer)

    def histogram(self, service: str, segment: str, stage: str, window: str) -> LogHistogram | None:
        """The latency histogram of a window; not to be changed."""
        total = self._total(service, segment, window)
        return total.sketches.get(stage) if total else None

    def sums_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None:
        """The sums of the longest window without those of `window`: how it was before. None where
        nothing is left."""
        past, total = self._past_and_window(service, segment, window)
        cell = self._cell(past, metric, scorer)
        now = self._cell(total, metric, scorer)
        return cell.without(now) if cell and now else cell

    def histogram_before(
        self, service: str, segment: str, stage: str, window: str
    ) -> LogHistogram | None:
        """The same of a stage's latency."""
        past, total = self._past_and_window(service, segment, window)
        if past is None or stage not in past.sketches:
            return None
        hist = LogHistogram()
        hist.merge(past.sketches[stage])
        if total and stage in total.sketches:
            hist.merge(total.sketches[stage], -1)
        return hist if hist.n else None

    def _past_and_window(
        self, service: str, segment: str, window: str
    ) -> tuple[WindowTotal | None, WindowTotal | None]:
        """The totals of the longest window and of `window`; every trace of this lies in that."""
        return (
            self._total(service, segment, self._longest.name),
            self._total(service, segment, window),
        )

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        """The sums of the traces of [start, start + width) as far as they have come: from the
        coarsest ring that has them and whose grain divides both. None without any, and where they
        have expired. When such a bucket is closed is for the caller to say."""
        between = list(self._between(service, segment, width, start))
        return self._sum(between, metric, scorer)

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        """The latency histogram of a stage, from the same buckets; the caller may keep it."""
        hist = LogHistogram()
        for bucket in self._between(service, segment, width, start):
            if stage in bucket.sketches:
                hist.merge_sketch(bucket.sketches[stage])
        return hist if hist.n else None

    def _between(self, service: str, segment: str, width: int, start: float) -> Iterator[Bucket]:
        if self._drafts:
            self._fold()
        for ring in reversed(self._rings):
            first, offset = divmod(start, ring.width)
            if width % ring.width or offset or ring.newest is None or first < ring.oldest:
                continue
            for index in range(int(first), int(first) + width // ring.width):
                bucket = ring.rows.get(index, {}).get((service, segment))
                if bucket is not None:
                    yield bucket
            return

    def _cell(
        self, sums: WindowTotal | Bucket | None, metric: str, scorer: str
    ) -> ScoreSums | None:
        return None if sums is None else self._sum([sums], metric, scorer)

    def _key(self, metric: str, scorer: str) -> tuple[str, str, str]:
        """(metric, scorer, its current series): what `_cell` is a function of."""
        return metric, scorer, self.current.get((metric, unassisted_scorer(scorer)), scorer)

    def _sum(
        self, parts: Sequence[WindowTotal | Bucket], metric: str, scorer: str
    ) -> ScoreSums | None:
        """The sums of a series. By a scorer's name: the current version's, with what no version
        has found (sampled out, failed, or known without asking) and the strata of all traces. By
        a version's name: its own, with those strata."""
        scorer = unassisted_scorer(scorer)
        name, _, version = scorer.partition("@")
        plain = self._stored_sums(parts, metric, name)
        if version:
            cell = self._stored_sums(parts, metric, scorer)
            return cell.joined(plain) if cell else None
        series = self.current.get((metric, name), name)
        current = self._stored_sums(parts, metric, series) if series != name else None
        cells = [cell for cell in (plain, current) if cell is not None]
        return ScoreSums.total(cells) if len(cells) > 1 else (cells[0] if cells else None)

    def _stored_sums(
        self, parts: Sequence[WindowTotal | Bucket], metric: str, scorer: str
    ) -> ScoreSums | None:
        place = self._slots.find((metric, scorer))
        if place is None:
            return None
        cells = [cell for part in parts if (cell := part.cell(place)) is not None]
        return cells[0] if len(cells) == 1 else ScoreSums.total(cells) if cells else None
