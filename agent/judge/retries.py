"""When a failed attempt is made again: backoff, `Retry-After`, and a budget over all calls."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

__all__ = ["MAX_RETRY_AFTER", "RetryBudget", "backoff", "retry_after"]

# Seconds. The first pause is short, a call that fails for 4 attempts has waited about 4 s.
BASE, CEILING = 0.5, 20.0

# A server may ask for an hour; a question a minute whether it still means it costs next to nothing.
MAX_RETRY_AFTER = 60.0


def backoff(attempt: int, rng: random.Random) -> float:
    """Seconds before retry `attempt` (0 is the first): exponential, full jitter.

    Full jitter (uniform from 0) spreads clients that failed together over the whole interval.
    """
    return rng.uniform(0, min(CEILING, BASE * 2.0 ** min(attempt, 30)))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks us to wait, within 0 and `MAX_RETRY_AFTER`.

    None: it does not say, or not so that it can be read. `now` in Unix seconds, for the HTTP-date
    form of RFC 9110; `retry-after-ms` is what some hosted services send as well.
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
            if date.tzinfo is None:  # "-0000" says UTC without saying so
                date = date.replace(tzinfo=UTC)
            seconds = date.timestamp() - now
        if not math.isnan(seconds):
            return min(max(seconds, 0.0), MAX_RETRY_AFTER)
    return None


class RetryBudget:
    """Extra attempts over all calls: at most `share` of the calls of the last two minutes, and
    `floor` more.

    The floor lets a client with few calls retry at all: in any two minutes there are at most
    `share * calls + floor` extra attempts, whatever the server does. All kinds of retries draw on
    it, also those of malformed answers.
    """

    SECONDS = 120
    STEP = 5  # width of a bucket in seconds

    def __init__(self, share: float = 0.1, floor: int = 10) -> None:
        self._share = share
        self._floor = floor
        self._buckets: deque[list[int]] = deque()  # [step, calls, extras]
        self._calls = 0
        self._extras = 0

    def call(self, now: float) -> None:
        """A call begins. `now` is monotonic."""
        self._bucket(now)[1] += 1
        self._calls += 1

    def allows(self, now: float) -> bool:
        """Takes one extra attempt where the budget has one."""
        bucket = self._bucket(now)
        if self._extras + 1 > self._share * self._calls + self._floor:
            return False
        bucket[2] += 1
        self._extras += 1
        return True

    def _bucket(self, now: float) -> list[int]:
        step = int(now // self.STEP)
        buckets = self._buckets
        while buckets and buckets[0][0] <= step - self.SECONDS // self.STEP:
            _, calls, extras = buckets.popleft()
            self._calls -= calls
            self._extras -= extras
        if not buckets or buckets[-1][0] != step:
            buckets.append([step, 0, 0])
        return buckets[-1]
