"""Label values come from outside: bounded in length and in number.

Over the number a value becomes `__other__` and is counted, so that no sender can make the agent
or Prometheus grow without bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

__all__ = ["OTHER", "LabelBounds", "bounded"]

OTHER = "__other__"


def bounded(text: str, limit: int) -> str:
    """`text` without control characters, at most `limit` characters long.

    A longer one keeps its start and gets a hash of the whole, so that two stay two.
    """
    if not text.isprintable():
        text = "".join(
            " " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
            for char in text
        )
    text = text.strip() or OTHER
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
        name = self.text(value)
        if name not in known:
            if len(known) >= limit:
                self._overflow(label)
                return OTHER
            known.add(name)
        return name

    def service(self, name: str, admit: bool = True) -> str:
        """The label of a service; a new one is given no place unless `admit`."""
        if not admit and self.text(name) not in self._services:
            return OTHER
        return self._admit(self._services, name, self._max_services, "service")

    def segment(self, service: str, tag: str, value: str) -> str:
        """`tag=value` with the value bounded."""
        known = self._segments.setdefault((service, tag), set())
        return f"{tag}={self._admit(known, value, self._max_values, tag)}"

    def known_segment(self, service: str, tag: str, value: str) -> str:
        """The same of a value that `segment` has been asked for just now: nothing is counted."""
        name = self.text(value)
        return f"{tag}={name if name in self._segments.get((service, tag), ()) else OTHER}"

    def fits(self, text: str) -> bool:
        """Whether `text` may be a label value as it is."""
        return len(text) <= self._chars and text.isprintable() and text == text.strip() != ""

    def text(self, text: str) -> str:
        """`text` as a label value."""
        return text if self.fits(text) else bounded(text, self._chars)

    def keep_services(self, active: Iterable[str]) -> list[str]:
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

    def keep_segments(self, service: str, active: Iterable[str]) -> None:
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
