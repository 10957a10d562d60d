"""Decoded spans of open traces, kept beside their lines in the state file.

Most traces are closed seconds after their first span came: to read those back from the file and
from JSON is a sixth of what a span costs. A copy is there for the whole trace or not at all, and
is the same as what would be read. Where there is none, the file has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.ingest.carried import MAX_VALUES, Carried
from agent.ingest.spans import Span, Value

__all__ = ["Copies"]

# What a span takes in memory besides its text, by what was measured: itself, two texts for each
# attribute, event or link, and what lies in lists and maps.
SPAN_BYTES = 400
ATTRIBUTE_BYTES = 150
VALUE_BYTES = 100


@dataclass(slots=True)
class _Copy:
    spans: list[Span] = field(default_factory=list)
    size: int = 0


def _cost(line: bytes, span: Span) -> int:
    size = len(line) + SPAN_BYTES + ATTRIBUTE_BYTES * len(span.links) + _held(span.attributes)
    for event in span.events:
        size += ATTRIBUTE_BYTES + _held(event.attributes)
    return size


def _held(attributes: dict[str, Value]) -> int:
    size = ATTRIBUTE_BYTES * len(attributes)
    for value in attributes.values():
        if isinstance(value, (list, dict)):
            size += _nested(value)
    return size


def _nested(value: list[Any] | dict[str, Any]) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return VALUE_BYTES * (1 + len(value)) + sum(
        _nested(one) for one in inner if isinstance(one, (list, dict))
    )


class Copies:
    """At most about `most` bytes. What is there longest stays: it is wanted next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[bytes, _Copy] = {}
        self.size = 0

    def add(self, trace: bytes, parts: Sequence[Carried], *, new: bool) -> None:
        """What has come of a trace; `new` says that nothing has before. A trace with log events,
        or so large that its values must be counted when it is read, is left to the file."""
        copy = _Copy() if new else self._copies.get(trace)
        if copy is None:
            return
        self.take(trace)
        for one in parts:
            if one.span is not None:
                copy.spans.append(one.span)
                copy.size += _cost(one.line, one.span)
            if one.span is None or copy.size > min(MAX_VALUES, self._most - self.size):
                return
        self._copies[trace] = copy
        self.size += copy.size

    def take(self, trace: bytes) -> list[Span] | None:
        """The spans of a trace, which are kept no longer."""
        copy = self._copies.pop(trace, None)
        if copy is None:
            return None
        self.size -= copy.size
        return copy.spans
