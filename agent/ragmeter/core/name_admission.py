"""The admission of names from outside to a bounded number of places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PlainSerializer

SortedSet = Annotated[set[str], PlainSerializer(sorted, return_type=list[str])]
"""A set that is saved in order, so that equal states are equal bytes."""


@dataclass(slots=True)
class NameEvidence:
    """In how many minutes a name was seen, an hour ago half as much, and in which one last."""

    amount: float
    minute: int

    def at(self, minute: int) -> float:
        """Return what is left of the amount in a minute."""
        return float(self.amount * 0.5 ** ((minute - self.minute) / _HALF_LIFE))

    def add(self, minute: int) -> bool:
        """Add a minute, once; return whether it was new."""
        if minute <= self.minute:
            return False
        self.amount = self.at(minute) + 1
        self.minute = minute
        return True


@dataclass(slots=True)
class AdmissionState:
    """The names that have places, those that wait for one, and those that have lost theirs."""

    admitted: dict[str, NameEvidence] = field(default_factory=dict)
    waiting: dict[str, NameEvidence] = field(default_factory=dict)
    leaving: SortedSet = field(default_factory=set)


_HALF_LIFE = 60.0  # minutes


class NameAdmission:
    """Admission of names from outside to at most `limit` places.

    While there is room, who comes first is admitted. Then traffic over time decides: a name seen in
    more than twice as many minutes of event time as the one seen least takes its place; an hour ago
    counts half. So names that are made up, each seen once, keep nobody out. A name that lost its
    place is remembered until nothing of it is left; at most a quarter of `limit` are at a time.

    Args:
        limit: How many are admitted.
        reserved: Names that are always admitted, and take no place from others.

    Attributes:
        state: What a restart goes on with.
    """

    _LEAST = 2.5  # minutes in which a name must have been seen, nearly, to take another's place
    _WAITING = 200  # names that are remembered of those without a place
    _STALE = 2  # minutes after which such a name is forgotten for another
    _SILENT = 1440  # minutes after which it is forgotten anyway

    def __init__(self, limit: int, reserved: Iterable[str] = ()) -> None:
        self._limit = limit
        self._reserved = frozenset(reserved)
        self.state = AdmissionState()

    def __contains__(self, name: str) -> bool:
        return name in self.state.admitted

    def admit(self, name: str, now: float | None) -> bool:
        """Return whether a name has a place, perhaps a new one.

        Args:
            name: A bounded name.
            now: Event time if the name is seen by this call, None if it is only asked for.
        """
        minute = 0 if now is None else int(now // 60)
        evidence = self.state.admitted.get(name)
        if evidence is not None:
            if now is not None:
                evidence.add(minute)
            return True
        if name in self._reserved or len(self.state.admitted.keys() - self._reserved) < self._limit:
            self.state.leaving.discard(name)
            self.state.admitted[name] = self.state.waiting.pop(name, NameEvidence(1.0, minute))
            return True
        return now is not None and self._challenge(name, minute)

    def _challenge(self, name: str, minute: int) -> bool:
        """Add evidence for a name without a place, and return whether it takes another's."""
        state = self.state
        evidence = state.waiting.get(name)
        if evidence is None:
            if len(state.waiting) >= self._WAITING:
                stale = min(state.waiting, key=lambda other: state.waiting[other].minute)
                if state.waiting[stale].minute > minute - self._STALE:
                    return False
                del state.waiting[stale]
            evidence = state.waiting[name] = NameEvidence(0.0, minute - 1)
        if not evidence.add(minute) or evidence.amount < self._LEAST:
            return False
        unreserved = state.admitted.keys() - self._reserved
        least = min(unreserved, key=lambda other: (state.admitted[other].at(minute), other))
        full = len(state.leaving - {name}) >= max(1, self._limit // 4)
        if full or evidence.amount <= 2 * state.admitted[least].at(minute):
            return False
        state.leaving.discard(name)
        state.leaving.add(least)
        state.waiting[least] = state.admitted.pop(least)
        state.admitted[name] = state.waiting.pop(name)
        return True

    def retain(self, active: Iterable[str]) -> set[str]:
        """Forget names of which nothing is left, and return them."""
        state = self.state
        gone = (state.admitted.keys() | state.leaving).difference(active)
        state.leaving -= gone
        for name in gone:
            state.admitted.pop(name, None)
        newest = max((one.minute for one in state.waiting.values()), default=0)
        for name in [n for n, one in state.waiting.items() if one.minute < newest - self._SILENT]:
            del state.waiting[name]
        return gone

    def adopt(self, names: Iterable[str]) -> None:
        """Admit names that had places before a restart."""
        for name in names:
            if name not in self.state.leaving:
                self.state.admitted.setdefault(name, NameEvidence(0.0, 0))

    def waiting(self) -> list[str]:
        """Return the names without a place, those seen most first."""
        newest = max((one.minute for one in self.state.waiting.values()), default=0)
        order = {name: one.at(newest) for name, one in self.state.waiting.items()}
        return sorted(order, key=lambda name: (-order[name], name))
