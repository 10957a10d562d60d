"""Bounds on label values from outside.

Label values come from senders, so they are bounded in length and in number. A value over the number
becomes `__other__` and is counted, so that no sender can make the agent or Prometheus grow without
bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from ragmeter.core.name_admission import NameAdmission

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
        services, evidence, leaving = self._services.dump()
        segments = sorted([*key, sorted(values)] for key, values in self._segments.items())
        return [services, segments, evidence, leaving]

    def load(self, state: list[Any]) -> None:
        """Restore what `dump` returned."""
        services, segments, evidence, leaving = state
        self._services.load(services, evidence, leaving)
        self._segments = {(service, tag): set(values) for service, tag, values in segments}
