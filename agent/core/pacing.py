"""When to act again: backoff between retries, `Retry-After`, and a steady pace."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

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
        monotonic: Clock in seconds.
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
