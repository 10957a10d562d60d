"""A clock that is moved by hand, and by whoever sleeps."""

from __future__ import annotations

__all__ = ["Hand"]


class Hand:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
