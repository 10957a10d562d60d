"""Durations, event time, steady clocks, deadlines, backoff between retries, and a steady pace."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))
_MAX_DURATION_CHARS = 20  # bounds the numbers in it

# A trace or a label further in the future than this is set to its arrival time. Clocks that nobody
# corrects are wrong by minutes, and one that is wrong by days must not move the windows.
FUTURE_SECONDS = 300.0

_MIN_WINDOW, _MAX_WINDOW = 60, 90 * 86_400  # seconds

# Bucket widths that divide an hour or a day, so that bucket edges fall on the clock.
_BUCKET_SECONDS = (
    86400,
    43200,
    21600,
    14400,
    10800,
    7200,
    3600,
    1800,
    1200,
    900,
    600,
    300,
    120,
    60,
    30,
    20,
    15,
    10,
    5,
    2,
    1,
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


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a process, in seconds: Unix time, and one that nobody sets."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


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
            self.event = event
            self.tick = tick

    def restore(self, event: float | None, down: float, tick: float) -> None:
        """Restore after a restart, `down` seconds of wall time after event time was `event`."""
        if event is not None:
            self.event = event + max(0.0, down)
            self.tick = tick

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


# The first pause is short; a call that fails for 4 attempts has waited about 4 s.
_BASE_SECONDS, _CEILING_SECONDS = 0.5, 20.0

# A server may ask for an hour; asking it once a minute whether it still means it costs nothing.
MAX_RETRY_AFTER = 60.0


def backoff_seconds(
    attempt: int,
    rng: random.Random | None,
    base: float = _BASE_SECONDS,
    ceiling: float = _CEILING_SECONDS,
    jitter: float = 1.0,
) -> float:
    """Return the seconds to wait before a retry: exponential, with jitter.

    Args:
        attempt: Number of the retry; 0 is the first.
        rng: Source of the jitter; None: no jitter.
        base: Seconds before the first retry.
        ceiling: Most seconds before any retry.
        jitter: Share of the pause that is random, 0 to 1. Jitter spreads clients that failed
            together over the interval.
    """
    pause = min(ceiling, base * 2.0 ** min(attempt, 30))
    return pause if rng is None else rng.uniform(pause * (1 - jitter), pause)


def parse_retry_after(
    headers: Mapping[str, str], now: float, ceiling: float = MAX_RETRY_AFTER
) -> float | None:
    """Return the seconds that a server asks its client to wait, from 0 to `ceiling`.

    Reads both forms of RFC 9110, and `retry-after-ms`, which some hosted services send as well.

    Args:
        headers: Headers of the reply; names in lower case unless the mapping ignores case.
        now: Unix seconds, for a header that holds a date.
        ceiling: Longest wait to honour.

    Returns:
        None where no header is present or none can be read.
    """
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                date = parsedate_to_datetime(text)
            except (ValueError, TypeError, OverflowError):
                continue
            if date.tzinfo is None:  # the zone "-0000" means UTC
                date = date.replace(tzinfo=UTC)
            seconds = date.timestamp() - now
        if not math.isnan(seconds):
            return min(max(seconds, 0.0), ceiling)
    return None


class Pace:
    """A steady rate of actions, and pauses that hold all of them back.

    Args:
        rate: Actions a second; None: no bound.
        sleep: Used by `wait` only.
        slack: Seconds of delay that later actions make up for by following faster.
    """

    def __init__(
        self,
        rate: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        slack: float = 0.0,
    ) -> None:
        self._interval = 1 / rate if rate is not None else 0.0
        self._monotonic = monotonic
        self._sleep = sleep
        self._slack = slack
        self._due: float | None = None

    def delay(self) -> float:
        """Return the seconds until the next action may begin, at least 0."""
        return 0.0 if self._due is None else max(0.0, self._due - self._monotonic())

    def begin(self) -> None:
        """Record that an action begins now."""
        now = self._monotonic()
        due = now if self._due is None else max(self._due, now - self._slack)
        self._due = due + self._interval

    def wait(self) -> None:
        """Sleep until the next action may begin, and record that it begins."""
        if (seconds := self.delay()) > 0:
            self._sleep(seconds)
        self.begin()

    def hold(self, seconds: float) -> None:
        """Let no action begin within the next `seconds`."""
        until = self._monotonic() + seconds
        self._due = until if self._due is None else max(self._due, until)
