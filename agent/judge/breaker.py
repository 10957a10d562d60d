"""Circuit breaker: a judge that does not work is left alone, and tried now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["PATIENCE", "Breaker", "Ticket"]

Ticket = int
"""Permission for one attempt; its result is reported with it."""

# Fewer attempts than this open nothing: one trace alone makes about 16 calls.
MIN_ATTEMPTS = 10

# Older results say nothing of now.
MAX_AGE = 600.0

# Seconds before the first trial, and at most between trials that fail.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0

# So many seconds of outage are worth waiting for: a restart or a new version of a server takes
# less, and traces that wait for longer hold up all others.
PATIENCE = 60.0


class Breaker:
    """Closed, open, or half open with one trial at a time.

    It opens where half of the last attempts failed (as many attempts as four rounds of everything
    in flight, at least 10), or where none of the last two rounds succeeded; the second rule counts
    answers of "too many requests" as well, which are no failures otherwise. After a pause one
    trial is let through: its success closes the breaker, its failure doubles the pause. A judge is
    given up where a trial fails after `PATIENCE` seconds, which are never slept through, or where
    a failure is hopeless.
    """

    def __init__(self, concurrency: int, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._window = max(2 * MIN_ATTEMPTS, 4 * concurrency)
        self._barren = max(MIN_ATTEMPTS, 2 * concurrency)
        self._results: deque[tuple[float, str]] = deque()
        self._counts = {"ok": 0, "failed": 0, "limited": 0}
        self._generation = 0
        self._open_until: float | None = None
        self._opened = 0.0
        self._lost = False
        self._patience = PATIENCE
        self._pause = FIRST_PAUSE
        self._trial = False

    @property
    def refuses(self) -> bool:
        """Whether an attempt would be turned away now."""
        if self._open_until is None:
            return False
        return self._trial or self._monotonic() < self._open_until

    @property
    def is_open(self) -> bool:
        """Whether the judge counts as down, trials or not."""
        return self._open_until is not None

    @property
    def lost(self) -> bool:
        """Whether the judge is down and not worth waiting for."""
        return self._lost

    @property
    def until_trial(self) -> float | None:
        """Seconds until a trial may be made, at least 0; none where nobody needs to wait for that
        time: the breaker is closed, or a trial is out."""
        if self._open_until is None or self._trial:
            return None
        return max(0.0, self._open_until - self._monotonic())

    def enter(self) -> Ticket | None:
        """A ticket for one attempt, to be given back by one of the methods below; none: refused."""
        if self.refuses:
            return None
        if self._open_until is not None:
            self._trial = True
        return self._generation

    def succeeded(self, ticket: Ticket) -> None:
        if ticket != self._generation:
            return  # an attempt from before the breaker opened: it says nothing of now
        if self._open_until is not None:
            self._close()
        else:
            self._add("ok")

    def failed(self, ticket: Ticket) -> bool:
        """Whether this opened the breaker."""
        return self._bad(ticket, "failed")

    def limited(self, ticket: Ticket) -> bool:
        """Told to come back later. Whether this opened the breaker."""
        return self._bad(ticket, "limited")

    def hopeless(self, ticket: Ticket) -> bool:
        """A failure that every call will meet: opens at once."""
        if ticket != self._generation:
            return False
        self._open()
        self._lost = True
        return True

    def abandoned(self, ticket: Ticket) -> None:
        """The attempt ended without a result."""
        if ticket == self._generation:
            self._trial = False

    def _bad(self, ticket: Ticket, kind: str) -> bool:
        if ticket != self._generation:
            return False
        if self._open_until is not None:
            return self._open()
        self._add(kind)
        ok, failed = self._counts["ok"], self._counts["failed"]
        rate = ok + failed >= MIN_ATTEMPTS and failed >= ok
        barren = not any(kind == "ok" for kind in self._last(self._barren))
        return self._open() if rate or barren else False

    def _last(self, number: int) -> list[str]:
        if len(self._results) < number:
            return ["ok"]  # not enough to judge by
        return [self._results[-i][1] for i in range(1, number + 1)]

    def _add(self, kind: str) -> None:
        now = self._monotonic()
        self._results.append((now, kind))
        self._counts[kind] += 1
        while len(self._results) > self._window or self._results[0][0] < now - MAX_AGE:
            self._counts[self._results.popleft()[1]] -= 1

    def _open(self) -> bool:
        now = self._monotonic()
        if self._open_until is None:
            self._pause, self._opened = FIRST_PAUSE, now
        end = self._opened + self._patience
        self._open_until = now + self._pause
        if now >= end:
            self._lost = True
        elif not self._lost:
            self._open_until = min(self._open_until, end)  # one more before it is given up
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._trial = False
        self._generation += 1
        return True

    def _close(self) -> None:
        self._open_until = None
        self._lost = False
        self._trial = False
        self._generation += 1
        self._results.clear()
        self._counts = dict.fromkeys(self._counts, 0)
