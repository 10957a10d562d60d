"""The time between two attempts: backoff with jitter, and what a server asks for."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
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


# "1m30s", "620ms", "20 seconds": a duration as Go and people write it
_DURATION_PART = re.compile(
    r"(?P<number>\d{1,9}(?:\.\d{1,12})?)\s?"
    r"(?:(?P<ms>ms|milliseconds?)|(?P<h>hours?|hrs?|h)|(?P<m>minutes?|mins?|m)|(?P<s>seconds?|secs?|s))"
    r"(?![a-z])\s?",
    re.IGNORECASE,
)
_UNIT_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_CLOCK = re.compile(r"(?:(\d{1,3}):)?([0-5]?\d):([0-5]?\d(?:\.\d{1,9})?)")

# Headers that tell the end of the pause where there is no Retry-After. Those of a limit count only
# where the header beside it says that nothing remains.
_RESET_HEADERS = (
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
)
# Seconds and milliseconds since 1970, not of a pause
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e12


def read_duration(text: str) -> float | None:
    """Return the seconds of "7", "7.5s", "1m30s", "620ms", "20 seconds" or "00:00:20"."""
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    if clock := _CLOCK.fullmatch(text):
        return int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
    seconds = 0.0
    at = 0
    while part := _DURATION_PART.match(text, at):
        seconds += float(part["number"]) * _UNIT_SECONDS[part.lastgroup or "s"]
        at = part.end()
    return seconds if at and at == len(text) else None


def _read_pause(text: str, now: float) -> float | None:
    """Return the seconds of a duration, or until a moment."""
    seconds = read_duration(text)
    if seconds is not None:
        if seconds >= _EPOCH_MILLISECONDS:
            return seconds / 1000 - now
        return seconds - now if seconds >= _EPOCH_SECONDS else seconds
    moment = _read_date(text)
    return None if moment is None else moment - now


def _read_date(text: str) -> float | None:
    """Return the Unix seconds of a date of HTTP or ISO 8601."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(text.strip())
        except (ValueError, TypeError, OverflowError):
            continue
        if date.tzinfo is None:  # the zone "-0000" means UTC
            date = date.replace(tzinfo=UTC)
        return date.timestamp()
    return None


def bounded_pause(seconds: float | None, ceiling: float = MAX_RETRY_AFTER) -> float | None:
    """Return a pause that a server asks for, from 0 to `ceiling`; None where it asks for none."""
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), ceiling)


def parse_retry_after(
    headers: Mapping[str, str], now: float, ceiling: float = MAX_RETRY_AFTER
) -> float | None:
    """Return the seconds that a server asks its client to wait, from 0 to `ceiling`.

    Reads both forms of RFC 9110, durations as Go writes them and dates of ISO 8601, and the headers
    that hosted services send beside it or in its place. A date is compared with the server's own
    `Date`, where it sends one: its clock may be an hour off ours.

    Args:
        headers: Headers of the reply; names in lower case unless the mapping ignores case.
        now: Unix seconds, for a header that holds a date.
        ceiling: Longest wait to honour.

    Returns:
        None where no header is present or none can be read.
    """
    own = _read_date(headers.get("date", ""))
    now = now if own is None else own
    milliseconds = read_duration(headers.get("retry-after-ms", ""))
    pause = None if milliseconds is None else bounded_pause(milliseconds / 1000, ceiling)
    if pause is None:
        pause = bounded_pause(_read_pause(headers.get("retry-after", ""), now), ceiling)
    if pause is not None:
        return pause
    used_up = [
        _read_pause(headers[reset], now)
        for reset, remaining in _RESET_HEADERS
        if reset in headers and headers.get(remaining, "0").strip() == "0"
    ]
    return bounded_pause(max((seconds for seconds in used_up if seconds), default=None), ceiling)
