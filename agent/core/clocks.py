"""Durations, window lengths, event time, steady clocks and deadlines.

The wall clock of a start, going on evenly: for spans of time that no setting of the clock, nor
its correction, may stretch or cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

_DURATION_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_DURATION_PATTERN = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: object) -> float:
    """Seconds. A bare 0 is allowed; any other bare number is not, as its unit would be a guess."""
    if text == 0 and not isinstance(text, bool):
        return 0.0
    match = _DURATION_PATTERN.fullmatch(text) if isinstance(text, str) and len(text) <= 20 else None
    if text == "0":
        return 0.0
    if match is None or not text:
        raise ValueError("a duration like 30s, 5m, 1h or 1h30m is needed")
    return sum(
        int(number) * unit
        for number, unit in zip(match.groups(), _DURATION_UNITS.values(), strict=True)
        if number is not None
    )


@lru_cache(maxsize=1_000)
def parse_whole_seconds(text: str) -> int:
    """The same of a duration that is known to be one; evaluations ask for it all the time."""
    return int(parse_duration(text))


_WINDOW_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

_BUCKET_SECONDS = (
    *(86400, 43200, 21600, 14400, 10800, 7200, 3600, 1800, 1200, 900, 600, 300, 120),
    *(60, 30, 20, 15, 10, 5, 2, 1),
)
"""Grains that divide an hour or a day, so that bucket edges fall on the clock."""


def parse_window(name: str) -> int:
    """The length of "5m", "1h", "24h", "7d": a whole number and one of s, m, h, d, w.

    Between one minute and 90 days; ValueError says what is allowed.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhdw])", name)
    seconds = int(match[1]) * _WINDOW_UNITS[match[2]] if match else 0
    if not 60 <= seconds <= 90 * 86400:
        raise ValueError(
            f"window {name!r}: a whole number and one of s, m, h, d, w, from 60s to 90d"
        )
    return seconds


def bucket_seconds(seconds: int) -> int:
    """The bucket width of a window, in seconds; it divides the window.

    A window ends with the open bucket, so its true length wavers by one grain: at least 30 buckets
    up to 15 minutes, 60 up to six hours, 120 above. That gives 5m by 10 s, 1h by 60 s, 24h by
    600 s, where the error from the grain is a quarter of the sampling error at 10 traces/s or less.
    """
    buckets = 30 if seconds <= 900 else 60 if seconds <= 6 * 3600 else 120
    return next(g for g in _BUCKET_SECONDS if seconds % g == 0 and seconds >= g * buckets)


@dataclass(slots=True)
class EventClock:
    """Remembers when the newest event time was reached.

    `tick` times are seconds of a clock that never jumps (`time.monotonic`): an NTP correction of
    the wall clock must not empty the windows. The lag between events and their arrival is kept:
    events that come 30 s late keep event time 30 s behind the clock.
    """

    event: float | None = None
    tick: float = 0.0

    def observe(self, event: float | None, tick: float) -> None:
        """The events have reached `event`; an earlier one than before changes nothing."""
        if event is not None and (self.event is None or event > self.event):
            self.event, self.tick = event, tick

    def restore(self, event: float | None, down: float, tick: float) -> None:
        """After a restart: `down` seconds of wall time passed since event time was `event`."""
        if event is not None:
            self.event, self.tick = event + max(0.0, down), tick

    def now(self, tick: float) -> float | None:
        """Event time at `tick`; None before the first event."""
        return None if self.event is None else self.event + max(0.0, tick - self.tick)


def make_steady_clock(
    clock: Callable[[], float], monotonic: Callable[[], float]
) -> Callable[[], float]:
    """What `clock` says now, and from there on as `monotonic` goes."""
    begin = clock() - monotonic()
    return lambda: begin + monotonic()


_DEADLINE: ContextVar[float | None] = ContextVar("end", default=None)


@contextlib.asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """The block is cut off after so long, with `TimeoutError`; what it calls can ask how long is
    `left`, and come back sooner with what it has."""
    end = asyncio.get_running_loop().time() + seconds
    mark = _DEADLINE.set(end)
    try:
        async with asyncio.timeout_at(end):
            yield
    finally:
        _DEADLINE.reset(mark)


def remaining_seconds(most: float) -> float:
    """Seconds until the end of the innermost block, `most` where there is none."""
    end = _DEADLINE.get()
    return most if end is None else min(most, end - asyncio.get_running_loop().time())
