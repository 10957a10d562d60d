"""Durations as people write them, and the lengths that windows may have."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import lru_cache

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))
_MAX_DURATION_CHARS = 20  # bounds the numbers in it

_MIN_WINDOW = 60  # seconds
_MAX_WINDOW = 90 * 86_400  # seconds


def main_window(names: Sequence[str]) -> str:
    """Return the window that is shown first, of which segments are: 1h, or the middle one."""
    return "1h" if "1h" in names else names[len(names) // 2]


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
