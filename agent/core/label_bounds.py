"""Bounds on label values from outside, and slots that number services in saved state.

Label values come from outside: bounded in length and in number.

Over the number a value becomes `__other__` and is counted, so that no sender can make the agent
or Prometheus grow without bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

OTHER_LABEL = "__other__"


def bound_label(text: str, limit: int) -> str:
    """`text` without control characters, at most `limit` characters long.

    A longer one keeps its start and gets a hash of the whole, so that two stay two.
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


class LabelBounds:
    """Admits label values first come, first served.

    `overflow(label)` is called for each value that became `__other__`.
    """

    def __init__(
        self, services: int, segment_values: int, chars: int, overflow: Callable[[str], None]
    ) -> None:
        self._max_services = services
        self._max_values = segment_values
        self._chars = chars
        self._overflow = overflow
        self._services: set[str] = set()
        self._segments: dict[tuple[str, str], set[str]] = {}

    def _admit(self, known: set[str], value: str, limit: int, label: str) -> str:
        name = self.bound(value)
        if name not in known:
            if len(known) >= limit:
                self._overflow(label)
                return OTHER_LABEL
            known.add(name)
        return name

    def service(self, name: str, admit: bool = True) -> str:
        """The label of a service; a new one is given no place unless `admit`."""
        if not admit and self.bound(name) not in self._services:
            return OTHER_LABEL
        return self._admit(self._services, name, self._max_services, "service")

    def segment(self, service: str, tag: str, value: str) -> str:
        """`tag=value` with the value bounded."""
        known = self._segments.setdefault((service, tag), set())
        return f"{tag}={self._admit(known, value, self._max_values, tag)}"

    def fits(self, text: str) -> bool:
        """Whether `text` may be a label value as it is."""
        return len(text) <= self._chars and text.isprintable() and text == text.strip() != ""

    def bound(self, text: str) -> str:
        """`text` as a label value."""
        return text if self.fits(text) else bound_label(text, self._chars)

    def retain_services(self, active: Iterable[str]) -> list[str]:
        """Free the places of services that have no data in any window any more; their names."""
        gone = self._services.difference(active)
        self._services -= gone
        for key in [key for key in self._segments if key[0] in gone]:
            del self._segments[key]
        return sorted(gone)

    def services_with_full_segments(self) -> list[str]:
        """Services of which a tag has no place left."""
        full = {key[0] for key, known in self._segments.items() if len(known) >= self._max_values}
        return sorted(full)

    def retain_segments(self, service: str, active: Iterable[str]) -> None:
        """Free the places of a service's `tag=value` segments that no window holds any more."""
        active = set(active)
        for (name, tag), known in self._segments.items():
            if name == service:
                known.intersection_update([value for value in known if f"{tag}={value}" in active])

    def dump(self) -> list[Any]:
        return [
            sorted(self._services),
            sorted([*key, sorted(values)] for key, values in self._segments.items()),
        ]

    def load(self, state: list[Any]) -> None:
        services, segments = state
        self._services = set(services)
        self._segments = {(service, tag): set(values) for service, tag, values in segments}


class ServiceSlots:
    """The smallest free number for each new service: as many parts are kept as there were services
    at once, however many come and go."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def slot_of(self, service: str) -> int:
        place = self._places.get(service)
        if place is None:
            taken = set(self._places.values())
            place = next(n for n in range(len(taken) + 1) if n not in taken)
            self._places[service] = place
        return place

    def retain(self, services: Iterable[str]) -> None:
        """Free the places of every other service."""
        kept = set(services)
        self._places = {name: place for name, place in self._places.items() if name in kept}

    def saved_states(
        self, state: Mapping[str, Any], kind: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each service with its part `KIND.PLACE` of a saved state; a part that still holds what a
        service before it has left is passed over."""
        for service, slot, part in self.saved_entries(state, kind):
            if not slot and part["service"] == service:
                yield service, part

    def saved_entries(self, state: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, Any]]:
        """(service, slot, part) of every part `KIND.PLACE` (slot "") and `KIND.PLACE.SLOT` of a
        saved state whose place has a service now; whose it was is for the caller to tell."""
        services = {str(place): service for service, place in self._places.items()}
        for name, part in state.items():
            found, _, rest = name.partition(".")
            place, _, slot = rest.partition(".")
            if found == kind and place in services:
                yield services[place], slot, part

    def dump(self) -> dict[str, int]:
        """JSON-able."""
        return dict(self._places)

    def load(self, saved: Mapping[str, int]) -> None:
        """The inverse of `dump`."""
        self._places = {name: int(place) for name, place in saved.items()}
