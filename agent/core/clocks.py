"""Durations, window lengths, event time, steady clocks and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))
_MAX_DURATION_CHARS = 20  # bounds the numbers in it

_MIN_WINDOW, _MAX_WINDOW = 60, 90 * 86_400  # seconds

# Bucket widths that divide an hour or a day, so that bucket edges fall on the clock.
_BUCKET_SECONDS = (
    *(86400, 43200, 21600, 14400, 10800, 7200, 3600, 1800, 1200, 900, 600, 300, 120),
    *(60, 30, 20, 15, 10, 5, 2, 1),
)


def parse_duration(text: object) -> float:
    """Parse a duration like `30s`, `5m` or `1h30m` to seconds.

    Raises:
        ValueError: Not a duration. A bare number other than 0 is none: its unit would be a guess.
    """
    if text == "0" or (text == 0 and not isinstance(text, bool)):
        return 0.0
    match = None
    if isinstance(text, str) and 0 < len(text) <= _MAX_DURATION_CHARS:
        match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("a duration like 30s, 5m, 1h or 1h30m is needed")
    return float(
        sum(int(n or 0) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True))
    )


@lru_cache(maxsize=1_000)
def parse_whole_seconds(text: str) -> int:
    """Parse a duration to whole seconds, cached: evaluations need it all the time."""
    return int(parse_duration(text))


def parse_window(name: str) -> int:
    """Parse the length of a window, a duration from 60s to 90d, to seconds.

    Raises:
        ValueError: Not a duration, or out of bounds.
    """
    with contextlib.suppress(ValueError):
        if _MIN_WINDOW <= (seconds := parse_whole_seconds(name)) <= _MAX_WINDOW:
            return seconds
    raise ValueError(
        f"window {name!r}: a duration like 5m, 24h or 1h30m is needed, from 60s to 90d"
    )


def bucket_seconds(seconds: int) -> int:
    """Return the bucket width of a window of this length, in seconds; it divides the window.

    A window ends with the open bucket, so its true length varies by one bucket: at least 30 buckets
    up to 15 minutes, 60 up to six hours, 120 above. That gives 5m by 10 s, 1h by 60 s, 24h by
    600 s, where the error from the width is a quarter of the sampling error at 10 traces/s or less.
    """
    buckets = 30 if seconds <= 900 else 60 if seconds <= 6 * 3600 else 120
    return next(g for g in _BUCKET_SECONDS if seconds % g == 0 and seconds >= g * buckets)


@dataclass(slots=True)
class EventClock:
    """The newest event time, and the tick at which it was reached.

    Ticks are seconds of a clock that never jumps (`time.monotonic`): an NTP correction of the wall
    clock must not empty the windows. The lag between events and their arrival is kept: events that
    come 30 s late keep event time 30 s behind the clock.
    """

    event: float | None = None
    tick: float = 0.0

    def observe(self, event: float | None, tick: float) -> None:
        """Move event time forward to `event`; an earlier one changes nothing."""
        if event is not None and (self.event is None or event > self.event):
            self.event, self.tick = event, tick

    def restore(self, event: float | None, down: float, tick: float) -> None:
        """Restore after a restart, `down` seconds of wall time after event time was `event`."""
        if event is not None:
            self.event, self.tick = event + max(0.0, down), tick

    def now(self, tick: float) -> float | None:
        """Return event time at `tick`, None before the first event."""
        return None if self.event is None else self.event + max(0.0, tick - self.tick)


def make_steady_clock(
    clock: Callable[[], float], monotonic: Callable[[], float]
) -> Callable[[], float]:
    """Make a clock that starts at the wall clock's time and follows the monotonic one.

    Setting or correcting the wall clock does not stretch or cut its spans of time.
    """
    begin = clock() - monotonic()
    return lambda: begin + monotonic()


_DEADLINE: ContextVar[float | None] = ContextVar("end", default=None)


@contextlib.asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` with `TimeoutError`.

    Code inside may ask for `remaining_seconds`, to return earlier with a partial result.
    """
    end = asyncio.get_running_loop().time() + seconds
    token = _DEADLINE.set(end)
    try:
        async with asyncio.timeout_at(end):
            yield
    finally:
        _DEADLINE.reset(token)


def remaining_seconds(most: float) -> float:
    """Return the seconds until the innermost `time_limit` ends, at most `most`."""
    end = _DEADLINE.get()
    return most if end is None else min(most, end - asyncio.get_running_loop().time())
