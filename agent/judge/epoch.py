"""Which instrument stands for a judge now: an epoch, the same for all its calls at a time. Pure.

A hosted judge may answer from several builds in turn. Were each reply a measurement of its own
build, the scores of a metric would shatter into series by who happened to answer, each a biased
selection (a short trace is judged by one build, a long one by several). So builds that answer in
turn are one instrument, named by the one that came to them last. A new epoch begins where

- an identity answers that is new, or was absent;
- another than the one that gave the epoch its name answers, and that one is absent: it may have
  been replaced by one that was there before, as after a rollback.

Absent is who was not heard for `ABSENT` seconds of use. A server that makes up an identity for
each reply has none: it counts as one that says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from agent.judge.fingerprint import Served

__all__ = ["ABSENT", "MAX_IDENTITIES", "MAX_IN_TURN", "PAUSE", "Epochs"]

log = logging.getLogger("ragmeter.judge")

ABSENT = 600.0
"""Seconds of use. A build that gives one reply in 30 is missed for so long, at one reply a second,
with a chance of 1.5 in 10^9; and it bounds how late the way back to an earlier build is seen."""

PAUSE = 30.0
"""The seconds between two replies that count as use, at most. While nobody asks, nobody is absent:
without this bound each build would seem to return after every quiet night. An absence takes 20
replies therefore, however slowly they come."""

MAX_IN_TURN = 8
"""Identities that can be heard within `ABSENT`. Services in use show a few; a server beyond it
makes them up, or has so many that all of them together are the instrument."""

CALM = MAX_IN_TURN // 2
"""Identities down to which a server must come to be believed again: not at 8, or one that has 8 or
9 of them would switch to and fro."""

MAX_IDENTITIES = 16
"""Identities remembered, the last that were heard: enough to see more than `MAX_IN_TURN`."""


class Epochs:
    """The epochs of one client. `clock` gives seconds, monotonic.

    `state` is what `state()` gave before a restart: what it knows counts as heard just now, as the
    time until then was no use. A state of another shape is no state.
    """

    def __init__(self, clock: Callable[[], float], state: object = None) -> None:
        self._clock = clock
        self._before: float | None = None
        self._used = 0.0  # seconds of use: the time of what follows
        self._replies: dict[Served, float] = {}  # as replies name themselves, latest last
        self._known: dict[Served, float] = {}  # as they are believed, latest last
        self._noisy: set[str | None] = set()  # models whose builds, None: server whose models
        self.current: Served | None = None
        """The identity that stands for the instrument; none before the first reply."""
        self._restore(state)

    def heard(self, served: Served) -> Served:
        """A reply came that names itself `served`: the identity of the epoch that it belongs to."""
        now = self._clock()
        if self._before is not None:
            self._used += min(max(now - self._before, 0.0), PAUSE)
        self._before = now
        _note(self._replies, served, self._used)
        who = self._believed(served)
        last = self._known.get(who)
        _note(self._known, who, self._used)
        current = self.current
        if current is None or self._absent(last) or self._absent(self._known.get(current)):
            self.current = current = who
        return current

    def _absent(self, last: float | None) -> bool:
        return last is None or self._used - last > ABSENT

    def _believed(self, served: Served) -> Served:
        recent = [one for one, last in self._replies.items() if not self._absent(last)]
        self._noisy &= {None, *(one.model for one in recent)}
        if self._makes_up(None, len({one.model for one in recent})):
            return Served()
        if self._makes_up(served.model, sum(one.model == served.model for one in recent)):
            return Served(served.model)
        return served

    def _makes_up(self, model: str | None, names: int) -> bool:
        """Whether `names` within `ABSENT` are too many to mean anything."""
        noisy = model in self._noisy
        if names > (CALM if noisy else MAX_IN_TURN):
            if not noisy:
                self._noisy.add(model)
                what = "models" if model is None else "system_fingerprints"
                log.warning("a judge shows more than %d %s: not used", MAX_IN_TURN, what)
            return True
        self._noisy.discard(model)
        return False

    def state(self) -> dict[str, Any]:
        """For the next start, as JSON."""
        return {
            "current": _pair(self.current) if self.current else None,
            "known": self._present(self._known),
            "replies": self._present(self._replies),
        }

    def _present(self, table: Mapping[Served, float]) -> list[list[str]]:
        return [_pair(one) for one, last in table.items() if not self._absent(last)]

    def _restore(self, state: object) -> None:
        if not isinstance(state, Mapping):
            return
        current = _served(state.get("current"))
        if current is None:
            return
        self.current = current
        for table, name in ((self._known, "known"), (self._replies, "replies")):
            rows = state.get(name)
            for row in rows if isinstance(rows, list) else ():
                if (one := _served(row)) is not None:
                    _note(table, one, self._used)
        _note(self._known, current, self._used)


def _note(table: dict[Served, float], who: Served, now: float) -> None:
    table.pop(who, None)  # a dict keeps the order of first insertion
    table[who] = now
    if len(table) > MAX_IDENTITIES:
        del table[next(iter(table))]


def _pair(served: Served) -> list[str]:
    return [served.model, served.system_fingerprint]


def _served(row: object) -> Served | None:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(x, str) for x in row):
        return None
    return Served.from_reply({"model": row[0], "system_fingerprint": row[1]})
