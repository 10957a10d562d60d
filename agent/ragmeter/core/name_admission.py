"""The admission of names from outside to a bounded number of places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class NameAdmission:
    """Admission of names from outside to at most `limit` places.

    While there is room, who comes first is admitted. Then traffic over time decides: a name seen in
    more than twice as many minutes of event time as the one seen least takes its place; an hour ago
    counts half. So names that are made up, each seen once, keep nobody out. A name that lost its
    place is remembered until nothing of it is left; at most a quarter of `limit` are at a time.

    Args:
        limit: How many are admitted.
        reserved: Names that are always admitted, and take no place from others.
    """

    _HALF_LIFE = 60.0  # minutes
    _LEAST = 2.5  # minutes in which a name must have been seen, nearly, to take another's place
    _WAITING = 200  # names that are remembered of those without a place
    _STALE = 2  # minutes after which such a name is forgotten for another
    _SILENT = 1440  # minutes after which it is forgotten anyway

    def __init__(self, limit: int, reserved: Iterable[str] = ()) -> None:
        self._limit = limit
        self._reserved = frozenset(reserved)
        self._admitted: dict[str, _Evidence] = {}
        self._waiting: dict[str, _Evidence] = {}
        self._leaving: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._admitted

    def admit(self, name: str, now: float | None) -> bool:
        """Return whether a name has a place, perhaps a new one.

        Args:
            name: A bounded name.
            now: Event time if the name is seen by this call, None if it is only asked for.
        """
        minute = 0 if now is None else int(now // 60)
        evidence = self._admitted.get(name)
        if evidence is not None:
            if now is not None:
                evidence.add(minute)
            return True
        if name in self._reserved or len(self._admitted.keys() - self._reserved) < self._limit:
            self._leaving.discard(name)
            evidence = self._waiting.pop(name) if name in self._waiting else _Evidence(1.0, minute)
            self._admitted[name] = evidence
            return True
        return now is not None and self._challenge(name, minute)

    def _challenge(self, name: str, minute: int) -> bool:
        """Add evidence for a name without a place, and return whether it takes another's."""
        evidence = self._waiting.get(name)
        if evidence is None:
            if len(self._waiting) >= self._WAITING:
                stale = min(self._waiting, key=lambda other: self._waiting[other].minute)
                if self._waiting[stale].minute > minute - self._STALE:
                    return False
                del self._waiting[stale]
            evidence = self._waiting[name] = _Evidence(0.0, minute - 1)
        if not evidence.add(minute) or evidence.amount < self._LEAST:
            return False
        unreserved = self._admitted.keys() - self._reserved
        least = min(unreserved, key=lambda other: (self._admitted[other].at(minute), other))
        full = len(self._leaving - {name}) >= max(1, self._limit // 4)
        if full or evidence.amount <= 2 * self._admitted[least].at(minute):
            return False
        self._leaving.discard(name)
        self._leaving.add(least)
        self._waiting[least] = self._admitted.pop(least)
        self._admitted[name] = self._waiting.pop(name)
        return True

    def retain(self, active: Iterable[str]) -> set[str]:
        """Forget names of which nothing is left, and return them."""
        gone = (self._admitted.keys() | self._leaving).difference(active)
        self._leaving -= gone
        for name in gone:
            self._admitted.pop(name, None)
        newest = max((one.minute for one in self._waiting.values()), default=0)
        for name in [n for n, one in self._waiting.items() if one.minute < newest - self._SILENT]:
            del self._waiting[name]
        return gone

    def adopt(self, names: Iterable[str]) -> None:
        """Admit names that had places before a restart."""
        for name in names:
            if name not in self._leaving:
                self._admitted.setdefault(name, _Evidence(0.0, 0))

    def waiting(self) -> list[str]:
        """Return the names without a place, those seen most first."""
        newest = max((one.minute for one in self._waiting.values()), default=0)
        order = {name: one.at(newest) for name, one in self._waiting.items()}
        return sorted(order, key=lambda name: (-order[name], name))

    def dump(self) -> list[Any]:
        """Return the state as JSON-able data; the names that have places come first."""
        return [
            sorted(self._admitted),
            [
                {name: [one.amount, one.minute] for name, one in sorted(names.items())}
                for names in (self._admitted, self._waiting)
            ],
            sorted(self._leaving),
        ]

    def load(self, admitted: Iterable[str], evidence: Any, leaving: Iterable[str]) -> None:
        """Restore what `dump` returned."""
        own, waiting = evidence
        self._admitted = {name: _Evidence(*own[name]) for name in admitted}
        self._waiting = {name: _Evidence(*saved) for name, saved in waiting.items()}
        self._leaving = set(leaving)


@dataclass(slots=True)
class _Evidence:
    """In how many minutes a name was seen, an hour ago half as much, and in which one last."""

    amount: float
    minute: int

    def at(self, minute: int) -> float:
        return float(self.amount * 0.5 ** ((minute - self.minute) / NameAdmission._HALF_LIFE))

    def add(self, minute: int) -> bool:
        """Add a minute, once; return whether it was new."""
        if minute <= self.minute:
            return False
        self.amount = self.at(minute) + 1
        self.minute = minute
        return True
