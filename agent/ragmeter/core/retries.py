"""The time between two attempts: backoff with jitter, and what a server asks for."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

# The first pause is short; a call that fails for 4 attempts has waited about 4 s.
_BASE_SECONDS = 0.5
_CEILING_SECONDS = 20.0

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
