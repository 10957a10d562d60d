"""Bounds on label values from outside.

Label values come from senders, so they are bounded in length and in number. A value over the number
becomes `__other__` and is counted, so that no sender can make the agent or Prometheus grow without
bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

OTHER_LABEL = "__other__"

# Of the value of a label: names of services and tags are shorter, and each is kept in every series.
MAX_LABEL_CHARS = 128


def bound_label(text: str, limit: int) -> str:
    """Return `text` without control characters and at most `limit` characters long.

    A longer text keeps its start and gets a hash of the whole, so that two values stay distinct.
    """
    if not text.isprintable():
        text = "".join(
            " " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
            for char in text
        )
    text = text.strip() or OTHER_LABEL
    if len(text) <= limit:
        return text
    mark = blake2b(text.encode("utf-8", "replace"), digest_size=3).hexdigest()
    return f"{text[: limit - 7]}~{mark}"


def excerpt(text: str, limit: int) -> str:
    """Return the start of a text on one line, free of terminal control characters."""
    line = bound_label(" ".join(text[: 2 * limit].split()), 2 * limit)
    return line if len(line) <= limit else line[: limit - 1] + "…"


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

    def load(self, admitted: Iterable[str], evidence: Any = None, leaving: Any = ()) -> None:
        """Restore what `dump` returned; versions before had no evidence."""
        own, waiting = evidence if evidence is not None else ({}, {})
        self._admitted = {name: _Evidence(*(own.get(name) or (0.0, 0))) for name in admitted}
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


class LabelBounds:
    """Admission of label values: services as `NameAdmission` has it, segments as they come.

    Args:
        services: Most services with labels of their own, besides the reserved ones.
        segment_values: Most values of a segment tag, per service.
        chars: Longest label value.
        overflow: Called with the label's name for each value that became `__other__`.
        reserved: Services that always have labels of their own.
    """

    def __init__(
        self,
        services: int,
        segment_values: int,
        chars: int,
        overflow: Callable[[str], None],
        reserved: Iterable[str] = (),
    ) -> None:
        self._max_values = segment_values
        self._chars = chars
        self._overflow = overflow
        self._services = NameAdmission(services, map(self.bound, reserved))
        self._segments: dict[tuple[str, str], set[str]] = {}

    def service(self, name: str, admit: bool = True, now: float | None = None) -> str:
        """Return the label of a service.

        Args:
            name: The name as it was sent.
            admit: Whether a new one may be admitted.
            now: Event time if this is traffic of the service.
        """
        name = self.bound(name)
        if name in self._services if not admit else self._services.admit(name, now):
            return name
        if admit:
            self._overflow("service")
        return OTHER_LABEL

    def others(self) -> list[str]:
        """Return services that are `__other__`, those with most traffic first."""
        return self._services.waiting()

    def segment(self, service: str, tag: str, value: str) -> str:
        """Return `tag=value` with the value bounded."""
        admitted = self._segments.setdefault((service, tag), set())
        name = self.bound(value)
        if name not in admitted:
            if len(admitted) >= self._max_values:
                self._overflow(tag)
                return f"{tag}={OTHER_LABEL}"
            admitted.add(name)
        return f"{tag}={name}"

    def fits(self, text: str) -> bool:
        """Return whether `text` may be a label value unchanged."""
        return len(text) <= self._chars and text.isprintable() and text == text.strip() != ""

    def bound(self, text: str) -> str:
        """Return `text` as a label value."""
        return text if self.fits(text) else bound_label(text, self._chars)

    def retain_services(self, active: Iterable[str]) -> list[str]:
        """Forget services without data in any window, and return their names."""
        gone = self._services.retain(active)
        for key in [key for key in self._segments if key[0] in gone]:
            del self._segments[key]
        return sorted(gone)

    def services_with_full_segments(self) -> list[str]:
        """Return the services with a tag that takes no further value."""
        full = {key[0] for key, values in self._segments.items() if len(values) >= self._max_values}
        return sorted(full)

    def retain_segments(self, service: str, active: Iterable[str]) -> None:
        """Forget segments `tag=value` of a service that no window holds any more."""
        active = set(active)
        for (name, tag), values in self._segments.items():
            if name == service:
                values.intersection_update([one for one in values if f"{tag}={one}" in active])

    def dump(self) -> list[Any]:
        """Return the admitted values as JSON-able data."""
        services, *evidence = self._services.dump()
        segments = sorted([*key, sorted(values)] for key, values in self._segments.items())
        return [services, segments, *evidence]

    def load(self, state: list[Any]) -> None:
        """Restore what `dump` returned."""
        services, segments, *evidence = state
        self._services.load(services, *evidence)
        self._segments = {(service, tag): set(values) for service, tag, values in segments}
