"""Which sums the windows hold, by service, segment, series, and window or bucket. The estimates
that are made of them are in `windows`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from agent.metrics.spec import MetricSpec
from agent.windows.bucket import Bucket, SeriesKey, Total
from agent.windows.loghist import LogHist
from agent.windows.state import WindowState
from agent.windows.stratified import assisted, is_assisted, without_help
from agent.windows.sums import Cell

__all__ = ["WindowSums"]


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
                found[name[0], assisted(name[1])] = None
        return list(found)

    def named(self, metric: str, scorer: str) -> str:
        """The series that a scorer's name stands for: its newest version, where it has versions."""
        plain = without_help(scorer)
        series = self.current.get((metric, plain), plain)
        return assisted(series) if is_assisted(scorer) else series

    def _current_keys(self) -> Iterator[tuple[SeriesKey, SeriesKey]]:
        for pair, scorer in self.current.items():
            yield pair, (pair[0], scorer)

    def stages(self, service: str, segment: str = "") -> list[str]:
        """Latency stages seen in the longest window."""
        total = self._total(service, segment, self._longest.name)
        return sorted(total.sketches) if total else []

    def seen(self, service: str, segment: str, window: str) -> int:
        """Traces in the window."""
        total = self._total(service, segment, window)
        return total.seen if total else 0

    def cell(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Cell | None:
        """The sums of a window."""
        return self._cell(self._total(service, segment, window), metric, scorer)

    def histogram(self, service: str, segment: str, stage: str, window: str) -> LogHist | None:
        """The latency histogram of a window; not to be changed."""
        total = self._total(service, segment, window)
        return total.sketches.get(stage) if total else None

    def before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Cell | None:
        """The sums of the longest window without those of `window`: how it was before. None where
        nothing is left."""
        past, total = self._two(service, segment, window)
        cell = self._cell(past, metric, scorer)
        now = self._cell(total, metric, scorer)
        return cell.without(now) if cell and now else cell

    def before_latency(self, service: str, segment: str, stage: str, window: str) -> LogHist | None:
        """The same of a stage's latency."""
        past, total = self._two(service, segment, window)
        if past is None or stage not in past.sketches:
            return None
        hist = LogHist()
        hist.merge(past.sketches[stage])
        if total and stage in total.sketches:
            hist.merge(total.sketches[stage], -1)
        return hist if hist.n else None

    def _two(self, service: str, segment: str, window: str) -> tuple[Total | None, Total | None]:
        """The totals of the longest window and of `window`; every trace of this lies in that."""
        return (
            self._total(service, segment, self._longest.name),
            self._total(service, segment, window),
        )

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> Cell | None:
        """The sums of the traces of [start, start + width) as far as they have come: from the
        coarsest ring that has them and whose grain divides both. None without any, and where they
        have expired. When such a bucket is closed is for the caller to say."""
        between = list(self._between(service, segment, width, start))
        return self._sum(between, metric, scorer)

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHist | None:
        """The latency histogram of a stage, from the same buckets; the caller may keep it."""
        hist = LogHist()
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

    def _cell(self, sums: Total | Bucket | None, metric: str, scorer: str) -> Cell | None:
        return None if sums is None else self._sum([sums], metric, scorer)

    def _key(self, metric: str, scorer: str) -> tuple[str, str, str]:
        """(metric, scorer, its current series): what `_cell` is a function of."""
        return metric, scorer, self.current.get((metric, without_help(scorer)), scorer)

    def _sum(self, parts: Sequence[Total | Bucket], metric: str, scorer: str) -> Cell | None:
        """The sums of a series. By a scorer's name: the current version's, with what no version
        has found (sampled out, failed, or known without asking) and the strata of all traces. By
        a version's name: its own, with those strata."""
        scorer = without_help(scorer)
        name, _, version = scorer.partition("@")
        plain = self._added(parts, metric, name)
        if version:
            cell = self._added(parts, metric, scorer)
            return cell.joined(plain) if cell else None
        series = self.current.get((metric, name), name)
        current = self._added(parts, metric, series) if series != name else None
        cells = [cell for cell in (plain, current) if cell is not None]
        return Cell.total(cells) if len(cells) > 1 else (cells[0] if cells else None)

    def _added(self, parts: Sequence[Total | Bucket], metric: str, scorer: str) -> Cell | None:
        place = self._slots.find((metric, scorer))
        if place is None:
            return None
        cells = [cell for part in parts if (cell := part.cell(place)) is not None]
        return cells[0] if len(cells) == 1 else Cell.total(cells) if cells else None
