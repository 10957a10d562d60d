"""The width of the buckets of a window."""

from __future__ import annotations

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


def bucket_seconds(seconds: int) -> int:
    """Return the bucket width of a window of this length, in seconds; it divides the window.

    A window ends with the open bucket, so its true length varies by one bucket: at least 30 buckets
    up to 15 minutes, 60 up to six hours, 120 above. That gives 5m by 10 s, 1h by 60 s, 24h by
    600 s, where the error from the width is a quarter of the sampling error at 10 traces/s or less.
    """
    buckets = 30 if seconds <= 900 else 60 if seconds <= 6 * 3600 else 120
    return next(g for g in _BUCKET_SECONDS if seconds % g == 0 and seconds >= g * buckets)
