"""Durations as people write them: `30s`, `5m`, `1h`, `2d`, `1w`, `1h30m`."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["parse_duration", "whole_seconds"]

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PATTERN = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: object) -> float:
    """Seconds. A bare 0 is allowed; any other bare number is not, as its unit would be a guess."""
    if text == 0 and not isinstance(text, bool):
        return 0.0
    match = _PATTERN.fullmatch(text) if isinstance(text, str) and len(text) <= 20 else None
    if text == "0":
        return 0.0
    if match is None or not text:
        raise ValueError("a duration like 30s, 5m, 1h or 1h30m is needed")
    return sum(
        int(number) * unit
        for number, unit in zip(match.groups(), _UNITS.values(), strict=True)
        if number is not None
    )


@lru_cache(maxsize=1_000)
def whole_seconds(text: str) -> int:
    """The same of a duration that is known to be one; evaluations ask for it all the time."""
    return int(parse_duration(text))
