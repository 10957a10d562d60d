"""Bounds on label values from outside, and slots that number services in saved state.

Label values come from senders, so they are bounded in length and in number. A value over the number
becomes `__other__` and is counted, so that no sender can make the agent or Prometheus grow without
bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

OTHER_LABEL = "__other__"


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


class LabelBounds:
    """Admission of label values, first come, first served.

    Args:
        services: Most services with labels of their own.
        segment_values: Most values of a segment tag, per service.
        chars: Longest label value.
        overflow: Called with the label's name for each value that became `__other__`.
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

    def _admit(self, admitted: set[str], value: str, limit: int, label: str) -> str:
        name = self.bound(value)
        if name not in admitted:
            if len(admitted) >= limit:
                self._overflow(label)
                return OTHER_LABEL
            admitted.add(name)
        return name

    def service(self, name: str, admit: bool = True) -> str:
        """Return the label of a service; a new one is admitted only if `admit`."""
        if not admit and self.bound(name) not in self._services:
            return OTHER_LABEL
        return self._admit(self._services, name, self._max_services, "service")

    def segment(self, service: str, tag: str, value: str) -> str:
        """Return `tag=value` with the value bounded."""
        admitted = self._segments.setdefault((service, tag), set())
        return f"{tag}={self._admit(admitted, value, self._max_values, tag)}"

    def fits(self, text: str) -> bool:
        """Return whether `text` may be a label value unchanged."""
        return len(text) <= self._chars and text.isprintable() and text == text.strip() != ""

    def bound(self, text: str) -> str:
        """Return `text` as a label value."""
        return text if self.fits(text) else bound_label(text, self._chars)

    def retain_services(self, active: Iterable[str]) -> list[str]:
        """Forget services without data in any window, and return their names."""
        gone = self._services.difference(active)
        self._services -= gone
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
        return [
            sorted(self._services),
            sorted([*key, sorted(values)] for key, values in self._segments.items()),
        ]

    def load(self, state: list[Any]) -> None:
        """Restore what `dump` returned."""
        services, segments = state
        self._services = set(services)
        self._segments = {(service, tag): set(values) for service, tag, values in segments}


class ServiceSlots:
    """The smallest free number for each new service.

    Saved state thus has as many parts as there were services at once, however many come and go.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def slot_of(self, service: str) -> int:
        """Return the slot of a service; a new one gets the smallest free slot."""
        slot = self._slots.get(service)
        if slot is None:
            taken = set(self._slots.values())
            slot = next(n for n in range(len(taken) + 1) if n not in taken)
            self._slots[service] = slot
        return slot

    def retain(self, services: Iterable[str]) -> None:
        """Free the slots of every other service."""
        active = set(services)
        self._slots = {name: slot for name, slot in self._slots.items() if name in active}

    def saved_states(
        self, state: Mapping[str, Any], kind: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each service with its part `KIND.SLOT` of a saved state.

        A part that still holds the state of the slot's previous service is skipped.
        """
        for service, suffix, part in self.saved_entries(state, kind):
            if not suffix and part["service"] == service:
                yield service, part

    def saved_entries(self, state: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, Any]]:
        """Yield (service, suffix, part) of every part `KIND.SLOT` and `KIND.SLOT.SUFFIX`.

        Only slots that a service has now; the part may be from the slot's previous service, which
        the caller must check. The suffix is "" where there is none.
        """
        services = {str(slot): service for service, slot in self._slots.items()}
        for name, part in state.items():
            part_kind, _, rest = name.partition(".")
            slot, _, suffix = rest.partition(".")
            if part_kind == kind and slot in services:
                yield services[slot], suffix, part

    def dump(self) -> dict[str, int]:
        """Return the slots as JSON-able data."""
        return dict(self._slots)

    def load(self, saved: Mapping[str, int]) -> None:
        """Restore what `dump` returned."""
        self._slots = {name: int(slot) for name, slot in saved.items()}
