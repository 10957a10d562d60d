"""Sources of sums by segment: the windows of a running agent, or of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any, Protocol

from ragmeter.breakdown.segment_rows import PeriodSums, SeriesBreakdown, series_kind
from ragmeter.breakdown.story import (
    MAX_COMPARED_SEGMENTS,
    CellPair,
    compare_segments,
    share_sums,
)
from ragmeter.core.series import is_overflow_series
from ragmeter.windows.intervals import assisted_scorer, unassisted_scorer
from ragmeter.windows.log_histogram import LogHistogram, cell_index
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.windows import Windows

# Seconds of the longest window's buckets, of which a day is kept, and how long minutes are.
_COARSE_WIDTH, _FINE_SECONDS = 600, 3600.0
_DAY = 86400.0

_SeriesKey = tuple[str, str]


class BreakdownSource(Protocol):
    """The traffic of one service, now and before."""

    @property
    def service(self) -> str:
        """The name of the service."""

    @property
    def past(self) -> str | None:
        """A description of the traffic before; None without any."""

    def segments(self) -> Sequence[str]:
        """Return the segments of now and of before."""

    def series(self) -> Sequence[_SeriesKey]:
        """Return (metric, scorer) by which the values of each scorer are estimated best."""

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the scorer with the fingerprint of its instrument, if it has one."""

    def periods(self, metric: str, scorer: str) -> tuple[PeriodSums, PeriodSums | None]:
        """Return the sums of now and of before."""


class WindowBreakdownSource:
    """A window of a running agent, with the rest of its longest window as the past.

    `lock` is taken anew for each series: each is of one moment, and the writer never waits for all.

    Raises:
        KeyError: There is no such window.
    """

    def __init__(
        self,
        windows: Callable[[], Windows],
        service: str,
        window: str,
        lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.service = service
        self._windows = windows
        self._window = window
        self._lock = lock
        with lock():
            current = windows()
            if window not in current.names:
                raise KeyError(window)
            self._segments = current.segments(service)
            # not by traces: canaries are no traffic that was seen, and have a past too
            earlier = (
                current.sums_before(service, "", *key, window) for key in _series(current, service)
            )
            has_past = any(cell is not None and cell.scored for cell in earlier)
            self.past = f"the rest of {current.names[-1]}" if has_past else None

    def segments(self) -> Sequence[str]:
        """Return the segments of the longest window."""
        return self._segments

    def series(self) -> Sequence[_SeriesKey]:
        """Return the series of the service."""
        with self._lock():
            return _series(self._windows(), self.service)

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the scorer with its fingerprint."""
        with self._lock():
            return self._windows().current_scorer(metric, scorer)

    def periods(self, metric: str, scorer: str) -> tuple[PeriodSums, PeriodSums | None]:
        """Return the sums of the window and of the rest of the longest one."""
        names = ("", *self._segments)
        with self._lock():
            windows = self._windows()
            args = (metric, scorer, self._window)
            now = {name: windows.cell(self.service, name, *args) for name in names}
            if self.past is None:
                return now, None
            before = {name: windows.sums_before(self.service, name, *args) for name in names}
        return now, before


class FileBreakdownSource:
    """Two windows, each filled from a file; without the first there is no past."""

    def __init__(self, before: Windows | None, now: Windows, service: str) -> None:
        self.service = service
        self._now, self._before = now, before
        self.past = "the first file" if before and service in before.services() else None

    def segments(self) -> Sequence[str]:
        """Return the segments of both files."""
        both = [windows for windows in (self._now, self._before) if windows is not None]
        return sorted({name for windows in both for name in windows.segments(self.service)})

    def series(self) -> Sequence[_SeriesKey]:
        """Return the series of the second file, without the `changed` ones."""
        changed = set(self.changed())
        return [key for key in _series(self._now, self.service) if key not in changed]

    def changed(self) -> list[_SeriesKey]:
        """Return the series whose instrument changed: their difference may be the judge's."""
        if self._before is None:
            return []
        before = self._before
        return [
            key
            for key in _series(self._now, self.service)
            if (key[0], unassisted_scorer(key[1])) in before.series(self.service)
            and before.current_scorer(*key) != self._now.current_scorer(*key)
        ]

    def current_scorer(self, metric: str, scorer: str) -> str:
        """Return the scorer with its fingerprint in the second file."""
        return self._now.current_scorer(metric, scorer)

    def periods(self, metric: str, scorer: str) -> tuple[PeriodSums, PeriodSums | None]:
        """Return the sums of the second and of the first file."""
        before = self._period(self._before, metric, scorer) if self._before and self.past else None
        return self._period(self._now, metric, scorer), before

    def _period(self, windows: Windows, metric: str, scorer: str) -> PeriodSums:
        names = self.segments()
        window = windows.names[-1]
        return {
            name: windows.cell(self.service, name, metric, scorer, window) for name in ("", *names)
        }


class ChangeCells:
    """The traffic of a service on the day before a change and since then, from its buckets.

    Args:
        windows: The windows; those that reach back a day have the day.
        since: Time of the change, Unix seconds.
        at: End of the time since.
    """

    def __init__(self, windows: Windows, service: str, since: float, at: float) -> None:
        self._windows = windows
        self._service = service
        coarse = since - since % _COARSE_WIDTH
        # Minutes are kept for an hour. Later the bucket with the change in it counts on no side.
        late = at - since >= 0.75 * _FINE_SECONDS and since > coarse
        self._before = list(_bucket_times(coarse - _DAY, coarse))
        self._since = list(
            _bucket_times(coarse + _COARSE_WIDTH if late else since - since % 60, at - at % 60)
        )

    def compare_scores(
        self, metric: str, scorer: str, segments: bool = True
    ) -> SeriesBreakdown | None:
        """Compare a series, by segments or only as a whole."""
        return compare_segments(
            self._segments() if segments else (),
            lambda name: self.scores(name, metric, scorer),
            series_kind(metric, scorer),
        )

    def compare_latencies(self, stage: str, edge: float) -> SeriesBreakdown | None:
        """Compare the shares of a stage's latencies above `edge` (seconds)."""
        return compare_segments(self._segments(), lambda name: self._latencies(name, stage, edge))

    def _segments(self) -> Sequence[str]:
        return largest_segments(self._windows, self._service, self._windows.names[-1])

    def scores(self, segment: str, metric: str, scorer: str) -> CellPair:
        """Return the sums of a series before and since."""
        read = self._windows.bucket
        key = (self._service, segment, metric, scorer)
        before, since = (
            [cell for time in times if (cell := read(*key, *time))]
            for times in (self._before, self._since)
        )
        return ScoreSums.total(before), ScoreSums.total(since)

    def _latencies(self, segment: str, stage: str, edge: float) -> CellPair:
        before, since = LogHistogram(), LogHistogram()
        for whole, times in ((before, self._before), (since, self._since)):
            for time in times:
                hist = self._windows.bucket_latency(self._service, segment, stage, *time)
                if hist is not None:
                    whole.merge(hist)
        return share_above(before, edge), share_above(since, edge)


def largest_segments(windows: Windows, service: str, window: str) -> list[str]:
    """Return the segments of a service that an alert compares: those with most traffic."""
    return sorted(
        windows.segments(service),
        key=lambda name: (-windows.count_traces(service, name, window), name),
    )[:MAX_COMPARED_SEGMENTS]


def share_above(hist: LogHistogram | None, edge: float) -> ScoreSums | None:
    """Return the share of a histogram's values above `edge` (seconds); None without values."""
    if hist is None or not hist.n or not isfinite(edge):
        return None
    total = sum(hist.counts)
    above = sum(hist.counts[cell_index(max(edge, 0.0)) + 1 :])
    return share_sums(above / total, total * total / hist.w2)


def _bucket_times(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Cut a time into (width, start) of coarse buckets, and minutes at its ends."""
    while start + 60 <= end:
        coarse = start % _COARSE_WIDTH == 0 and start + _COARSE_WIDTH <= end
        width = _COARSE_WIDTH if coarse else 60
        yield width, start
        start += width


def _series(windows: Windows, service: str) -> list[_SeriesKey]:
    """Return every series; of plain and assisted, two findings of one thing, the narrower one."""
    pairs = windows.series(service)
    return [
        (metric, scorer)
        for metric, scorer in pairs
        if not is_overflow_series(scorer) and (metric, assisted_scorer(scorer)) not in pairs
    ]
