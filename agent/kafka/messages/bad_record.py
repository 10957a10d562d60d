"""What a record is that is none."""

from __future__ import annotations

__all__ = ["BadRecord", "TooLarge"]

MAX_WHY = 200


class BadRecord(ValueError):
    """What is no record of ours: `reason` is a word for a label, the text says more."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"{reason}: {why}"[:MAX_WHY])
        self.reason = reason


class TooLarge(BadRecord):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__("too_large", f"{size} bytes; the limit is {limit}")
