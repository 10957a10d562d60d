"""The traffic before and since a change, from the buckets of windows."""

from __future__ import annotations

from collections.abc import Iterator

from ragmeter.windows.contrasts import CellPair
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.shares import share_above
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.windows import Windows

# Seconds of the longest window's buckets, of which a day is kept, and how long minutes are.
_COARSE_WIDTH, _FINE_SECONDS = 600, 3600.0
_DAY = 86400.0


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

    def scores(self, segment: str, metric: str, scorer: str) -> CellPair:
        """Return the sums of a series before and since."""
        read = self._windows.bucket
        key = (self._service, segment, metric, scorer)
        before, since = (
            [cell for time in times if (cell := read(*key, *time))]
            for times in (self._before, self._since)
        )
        return ScoreSums.total(before), ScoreSums.total(since)

    def latencies(self, segment: str, stage: str, edge: float) -> CellPair:
        """Return the shares of a stage's latencies above `edge` (seconds) before and since."""
        before, since = LogHistogram(), LogHistogram()
        for whole, times in ((before, self._before), (since, self._since)):
            for time in times:
                hist = self._windows.bucket_latency(self._service, segment, stage, *time)
                if hist is not None:
                    whole.merge(hist)
        return share_above(before, edge), share_above(since, edge)


def _bucket_times(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Cut a time into (width, start) of coarse buckets, and minutes at its ends."""
    while start + 60 <= end:
        coarse = start % _COARSE_WIDTH == 0 and start + _COARSE_WIDTH <= end
        width = _COARSE_WIDTH if coarse else 60
        yield width, start
        start += width
