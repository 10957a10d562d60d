"""Label values come from outside: bounded in length and in number.

Over the number a value becomes `__other__` and is counted, so that no sender can make the agent
or Prometheus grow without bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b

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
        self._limits = (services, segment_values)
        self._chars = chars
        self._overflow = overflow
        self._services: dict[str, str] = {}
        self._segments: dict[tuple[str, str], dict[str, str]] = {}

    def _admit(self, known: dict[str, str], value: str, limit: int, label: str) -> str:
        found = known.get(value)
        if found is None:
            if len(known) >= limit:
                self._overflow(label)
                return OTHER
            found = known[value] = bounded(value, self._chars)
        return found

    def service(self, name: str) -> str:
        return self._admit(self._services, name, self._limits[0], "service")

    def segment(self, service: str, tag: str, value: str) -> str:
        """`tag=value` with the value bounded."""
        known = self._segments.setdefault((service, tag), {})
        return f"{tag}={self._admit(known, value, self._limits[1], tag)}"

    def fits(self, text: str) -> bool:
        """Whether `text` may be a label value as it is."""
        return len(text) <= self._chars and text.isprintable() and text == text.strip() != ""

    def text(self, text: str) -> str:
        """`text` as a label value."""
        return bounded(text, self._chars)

    def keep_services(self, active: Iterable[str]) -> None:
        """Free the places of services that have no data in any window any more."""
        active = set(active)
        self._services = {raw: name for raw, name in self._services.items() if name in active}
        self._segments = {key: v for key, v in self._segments.items() if key[0] in active}

    def dump(self) -> list[object]:
        return [
            self._services,
            [[service, tag, values] for (service, tag), values in self._segments.items()],
        ]

    def load(self, state: list[object]) -> None:
        services, segments = state
        assert isinstance(services, dict)
        assert isinstance(segments, list)
        self._services = dict(services)
        self._segments = {(service, tag): dict(values) for service, tag, values in segments}
