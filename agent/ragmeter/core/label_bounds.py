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

from ragmeter.core.name_admission import AdmissionState, NameAdmission, SortedSet

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


@dataclass(slots=True)
class LabelState:
    """The admitted services, and the values of their segments by service and tag."""

    services: AdmissionState
    segments: dict[str, dict[str, SortedSet]]


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
        self._segments: dict[str, dict[str, SortedSet]] = {}

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
        admitted = self._segments.setdefault(service, {}).setdefault(tag, set())
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
        for service in gone:
            self._segments.pop(service, None)
        return sorted(gone)

    def services_with_full_segments(self) -> list[str]:
        """Return the services with a tag that takes no further value."""
        return sorted(
            service
            for service, tags in self._segments.items()
            if any(len(values) >= self._max_values for values in tags.values())
        )

    def retain_segments(self, service: str, active: Iterable[str]) -> None:
        """Forget segments `tag=value` of a service that no window holds any more."""
        active = set(active)
        for tag, values in self._segments.get(service, {}).items():
            values.intersection_update([one for one in values if f"{tag}={one}" in active])

    def state(self) -> LabelState:
        """Return what a restart goes on with."""
        return LabelState(self._services.state, self._segments)

    def restore(self, state: LabelState) -> None:
        """Go on from a state."""
        self._services.state = state.services
        self._segments = state.segments
