"""How fast traces arrive, followed fast enough for a tenfold step. Pure."""

from __future__ import annotations

import math

__all__ = ["Arrivals"]

EVENTS = 64.0
"""Arrivals to average over: a spread of 1/sqrt(2 * 64) = 9 % for random arrivals."""

FASTEST, SLOWEST = 2.0, 60.0
"""Bounds of the averaging time in seconds. Traces come in batches of 0.2 s (see the worker), so
below 2 s the batches themselves would be followed."""

DOWN, UP, ALARM = 0.7, 1.5, 14.0
"""Page's two-sided CUSUM (1954) for a step: arrivals short of 0.7 times, or in excess of 1.5
times the expected ones are added up, and at 14 a step counts as seen. It began where the sum was
last 0. Poisson arrivals at a steady rate raise it falsely less than once in 10,000 arrivals, and
all that a false one does is to shorten the memory for a while."""


class _Side:
    """One side of the CUSUM: its sum, and arrivals and seconds since it was last 0."""

    __slots__ = ("arrivals", "seconds", "sum")

    def __init__(self) -> None:
        self.sum = self.arrivals = self.seconds = 0.0

    def add(self, difference: float, arrivals: int, seconds: float) -> bool:
        self.sum += difference
        if self.sum <= 0:
            self.sum = self.arrivals = self.seconds = 0.0
            return False
        self.arrivals += arrivals
        self.seconds += seconds
        return self.sum > ALARM


class Arrivals:
    """An exponential average whose memory holds some 64 arrivals, begun anew at each step seen."""

    __slots__ = ("_down", "_since", "_up", "_updated", "count", "rate")

    def __init__(self, now: float) -> None:
        self.rate = 0.0
        """Arrivals a second, as of the last update."""
        self.count = 0
        """Arrivals since the last update; the owner counts them up."""
        self._since = self._updated = now
        self._down, self._up = _Side(), _Side()

    def update(self, now: float, least: float) -> None:
        """Take in what was counted; any average is over at least `least` seconds."""
        passed = max(0.0, now - self._updated)
        expected = self.rate * passed
        memory = min(SLOWEST, max(FASTEST, EVENTS / self.rate if self.rate > 0 else SLOWEST))
        # Per second: of a long step the part that its memory keeps, of a short one 1/memory.
        gain = -math.expm1(-passed / memory) / passed if passed > 1e-6 * memory else 1 / memory
        gain = max(gain, 1 / max(least, now - self._since))  # a plain average in the beginning
        self.rate = self.rate * max(0.0, 1 - gain * passed) + gain * self.count
        fell = self._down.add(DOWN * expected - self.count, self.count, passed)
        rose = self._up.add(self.count - UP * expected, self.count, passed)
        if fell or rose:
            side = self._down if fell else self._up
            seconds = max(least, side.seconds)
            self.rate = side.arrivals / seconds
            self._since = now - seconds
            self._down, self._up = _Side(), _Side()
        self.count = 0
        self._updated = max(now, self._updated)

    def resume(self, now: float) -> None:
        """Go on from `now` with the rate as it is: the clock was set back, or a restart has left
        a gap of which nothing is known."""
        self._updated = now
        self._since = min(self._since, now)
