"""Window names and the grain of their buckets."""

from __future__ import annotations

import re

__all__ = ["grain_of", "seconds_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

_GRAINS = (
    *(86400, 43200, 21600, 14400, 10800, 7200, 3600, 1800, 1200, 900, 600, 300, 120),
    *(60, 30, 20, 15, 10, 5, 2, 1),
)
"""Grains that divide an hour or a day, so that bucket edges fall on the clock."""


def seconds_of(name: str) -> int:
    """The length of "5m", "1h", "24h", "7d": a whole number and one of s, m, h, d, w.

    Between one minute and 90 days; ValueError says what is allowed.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhdw])", name)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 60 <= seconds <= 90 * 86400:
        raise ValueError(
            f"window {name!r}: a whole number and one of s, m, h, d, w, from 60s to 90d"
        )
    return seconds


def grain_of(seconds: int) -> int:
    """The bucket width of a window, in seconds; it divides the window.

    A window ends with the open bucket, so its true length wavers by one grain: at least 30 buckets
    up to 15 minutes, 60 up to six hours, 120 above. That gives 5m by 10 s, 1h by 60 s, 24h by
    600 s, where the error from the grain is a quarter of the sampling error at 10 traces/s or less.
    """
    buckets = 30 if seconds <= 900 else 60 if seconds <= 6 * 3600 else 120
    return next(g for g in _GRAINS if seconds % g == 0 and seconds >= g * buckets)
