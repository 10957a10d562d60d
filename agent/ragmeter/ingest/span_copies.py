"""Copies in memory of the spans of open traces, so that closing a trace need not read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import MAX_VALUES, StoredPart

# The bytes that a span takes in memory besides its text, as measured: itself, two texts for each
# attribute or event, and the values in lists and maps.
_SPAN_BYTES = 400
_ATTRIBUTE_BYTES = 150
_VALUE_BYTES = 100


@dataclass(slots=True)
class _SpanCopy:
    spans: list[Span] = field(default_factory=list)
    size: int = 0


class SpanCopies:
    """Copies of the spans of open traces, of at most about `most` bytes.

    There is a copy of a whole trace or none. The oldest ones stay: they are closed next.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[bytes, _SpanCopy] = {}
        self.size = 0

    def add(self, trace: bytes, parts: Sequence[StoredPart], *, new: bool) -> None:
        """Add parts of a trace; `new` ones are its first.

        There is no copy of a trace with log events, nor of one so large that its values must be
        counted when it is read.
        """
        copy = _SpanCopy() if new else self._copies.get(trace)
        if copy is None:
            return
        self.take(trace)
        for part in parts:
            if part.span is not None:
                copy.spans.append(part.span)
                copy.size += _measure_span(part.line, part.span)
            if part.span is None or copy.size > min(MAX_VALUES, self._most - self.size):
                return
        self._copies[trace] = copy
        self.size += copy.size

    def take(self, trace: bytes) -> list[Span] | None:
        """Remove and return the spans of a trace."""
        copy = self._copies.pop(trace, None)
        if copy is None:
            return None
        self.size -= copy.size
        return copy.spans


def _measure_span(line: bytes, span: Span) -> int:
    size = len(line) + _SPAN_BYTES + _ATTRIBUTE_BYTES * len(span.events)
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        size += _ATTRIBUTE_BYTES * len(attributes)
        for value in attributes.values():
            if isinstance(value, (list, dict)):
                size += _measure_nested(value)
    return size


def _measure_nested(value: list[Any] | dict[str, Any]) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return _VALUE_BYTES * (1 + len(value)) + sum(
        _measure_nested(item) for item in inner if isinstance(item, (list, dict))
    )
