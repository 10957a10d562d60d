"""Sources of sums by segment: the windows of a running agent, or of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ragmeter.core.series import is_overflow_series
from ragmeter.parts.segments.segment_rows import PeriodSums
from ragmeter.parts.segments.story import MAX_COMPARED_SEGMENTS
from ragmeter.windows.windows import Windows

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
        """Return (metric, scorer) of every series."""

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
            if key in before.series(self.service)
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


def largest_segments(windows: Windows, service: str, window: str) -> list[str]:
    """Return the segments of a service that an alert compares: those with most traffic."""
    return sorted(
        windows.segments(service),
        key=lambda name: (-windows.count_traces(service, name, window), name),
    )[:MAX_COMPARED_SEGMENTS]


def _series(windows: Windows, service: str) -> list[_SeriesKey]:
    return [key for key in windows.series(service) if not is_overflow_series(key[1])]
