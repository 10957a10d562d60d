"""The one reader of OTLP spans and log records, within the limits of a request.

A record is a protobuf message or a `json_format.JsonMessage`, which has the same fields. Values
beyond a limit are left out and counted, never cut silently: a span that lost something shows it in
`Span.dropped`, just as one whose sender's own limits cost attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragmeter.core.errors import DataError, UsageError
from ragmeter.ingest.spans import (
    AttributeValue,
    LogEvent,
    Span,
    SpanEvent,
    may_carry_content,
    read_log_event,
)

_MAX_NAME = 1_024  # characters of a span's, event's or scope's name; real ones are below 100
_MAX_STATUS = 16_384  # characters: OpenInference puts a whole stack trace there, 3 to 8 KB
_MAX_TRACE_STATE = 1_024  # characters; W3C asks for 512 to be kept
# A list of numbers longer than this is an embedding or token ids (the smallest common embedding
# has 384). Nobody scores it, and a batch of them is most of a request: left out like bytes.
_MAX_NUMBERS = 256
_KINDS = 6  # span kinds 0 to 5, status codes 0 to 2; an unknown one is read as unset
_STATUSES = 3


@dataclass(frozen=True, slots=True)
class OtlpLimits:
    """Limits of one request, span and value.

    `values` are attributes, events and list elements, each 50 to 200 bytes once read.
    """

    # Of one request; the Collector's batches have 8,192. A span with valid ids has 34 bytes.
    spans: int = 100_000
    # Of one request: 150 MB at worst. 20 MB of RAG spans have 60,000, and of the shortest
    # attributes that occur (40 bytes) 500,000.
    values: int = 750_000
    # Of one span: 20 MB at worst. 40 documents with ten fields each are 400.
    span_values: int = 100_000
    # Of one span or event: to this OpenInference raises the SDK's own limit of 128.
    attributes: int = 10_000
    events: int = 10_000  # of one span: a stream may write one for every token
    depth: int = 20  # of lists and maps in a value; messages with tool calls in them have 6
    # Characters of one span or log record. Real retrieval spans have up to 120,000.
    text: int = 4 * 2**20
    # Characters of a resource's attributes: every span is stored with them, and real ones have
    # 300 to 3,000 (a process's command line).
    resource_text: int = 16_384


class UndecodableBody(UsageError):
    """Nothing of a body could be read; the text is for the sender.

    The reason `too_large` is a body that holds more than one may (413), any other is broken (400).
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason

    @property
    def too_large(self) -> bool:
        """Whether the sender should send smaller bodies."""
        return self.reason == "too_large"


class RejectedRecord(DataError):
    """One span or log record cannot be read; the text is the code of the reason."""


class SpanAllowance:
    """The values that one span, resource or log record may still hold, and a count of the rest."""

    __slots__ = ("dropped", "given", "left", "limits")

    def __init__(self, given: int, limits: OtlpLimits) -> None:
        self.given = given
        self.left = given
        self.limits = limits
        self.dropped = 0

    def take(self, wanted: int, most: int) -> int:
        """Return how many of `wanted` values may be read, and count the others as dropped."""
        taken = min(wanted, most, self.left)
        self.left -= taken
        self.dropped += wanted - taken
        return taken


class RecordForm(NamedTuple):
    """What the two forms of a body write in different ways.

    Attributes:
        pairs: Reads a list of keys and values, with so many levels of lists and maps in them.
        value: Reads one value, likewise.
        text_at: Returns the text at a key of such a list, "" if there is none.
    """

    pairs: Callable[[Sequence[Any], SpanAllowance, int], dict[str, AttributeValue]]
    value: Callable[[Any, SpanAllowance, int], AttributeValue]
    text_at: Callable[[Sequence[Any], str], str]


class RecordScope(NamedTuple):
    """The attributes of a resource, and the name of a scope of it."""

    resource: dict[str, AttributeValue]
    name: str = ""


@dataclass(slots=True)
class DecodedRequest:
    """The spans or log events of one request, and how many records could not be read, by reason.

    `ignored` are log records that are in order and carry no content of a span.
    """

    spans: list[Span] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    rejected: int = 0
    ignored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def reject(self, reason: str, count: int = 1) -> None:
        """Count records that could not be read."""
        self.rejected += count
        self.reasons[reason] += count

    @property
    def message(self) -> str:
        """The counts of rejected records as text for the sender, empty without any."""
        return ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())


class RequestReader:
    """Reads the records of one request, one at a time, within the limits of the request."""

    __slots__ = ("_form", "_values_left", "decoded", "limits", "records")

    def __init__(self, limits: OtlpLimits, form: RecordForm) -> None:
        self.limits = limits
        self.decoded = DecodedRequest()
        self._form = form
        self.records = 0
        self._values_left = limits.values

    def read(
        self,
        records: Iterable[tuple[Any, RecordScope, int]],
        parse: Callable[[Any], Any],
        *,
        logs: bool,
    ) -> DecodedRequest:
        """Read records; one that is broken or too much costs only itself and is counted.

        Args:
            records: Each with its scope and the bytes that bound the length of its texts.
            parse: Returns the message of a record; it raises `RejectedRecord` for a broken one.
            logs: Whether they are log records.
        """
        read = self._log if logs else self._span
        decoded = self.decoded
        for record, scope, size in records:
            self.records += 1
            if self.records > self.limits.spans:
                decoded.reject("too_many_spans")
                continue
            if self._values_left <= 0:
                decoded.reject("too_many_values")
                continue
            allowance = self._allow()
            try:
                read(parse(record), scope, allowance, size > self.limits.text)
            except RejectedRecord as error:
                decoded.reject(str(error))
            self._settle(allowance)
        return decoded

    def resource(self, attributes: Sequence[Any]) -> dict[str, AttributeValue]:
        """Read the attributes of a resource."""
        allowance = self._allow()
        read = self._attributes(attributes, allowance)
        trim_attributes((read,), self.limits.resource_text)
        self._settle(allowance)
        return read

    def _allow(self) -> SpanAllowance:
        return SpanAllowance(min(self._values_left, self.limits.span_values), self.limits)

    def _settle(self, allowance: SpanAllowance) -> None:
        self._values_left -= allowance.given - allowance.left

    def _span(self, wire: Any, scope: RecordScope, allowance: SpanAllowance, large: bool) -> None:
        attributes = self._attributes(wire.attributes, allowance)
        events = self._events(wire.events, allowance)
        kind = wire.kind
        parent_id = wire.parent_span_id
        status = wire.status
        code = status.code
        dropped = allowance.dropped + wire.dropped_attributes_count + wire.dropped_events_count
        if large:
            maps = (attributes, *(event.attributes for event in events))
            dropped += trim_attributes(maps, self.limits.text)
        self.decoded.spans.append(
            Span(
                trace_id=_id(wire.trace_id, 16, "bad_trace_id"),
                span_id=_id(wire.span_id, 8, "bad_span_id"),
                parent_id=_id(parent_id, 8, "bad_parent_id") if any(parent_id) else "",
                name=wire.name[:_MAX_NAME],
                kind=kind if 0 <= kind < _KINDS else 0,
                start=wire.start_time_unix_nano,
                end=wire.end_time_unix_nano,
                status=code if 0 <= code < _STATUSES else 0,
                status_message=status.message[:_MAX_STATUS],
                attributes=attributes,
                events=events,
                trace_state=wire.trace_state[:_MAX_TRACE_STATE],
                scope=scope.name[:_MAX_NAME],
                resource=scope.resource,
                dropped=dropped,
            )
        )

    def _events(self, wire: Sequence[Any], allowance: SpanAllowance) -> list[SpanEvent]:
        events: list[SpanEvent] = []
        if not wire:
            return events
        for event in wire[: allowance.take(len(wire), self.limits.events)]:
            if event is None:  # JSON that is no event
                allowance.dropped += 1
                continue
            allowance.dropped += event.dropped_attributes_count
            attributes = self._attributes(event.attributes, allowance)
            events.append(SpanEvent(event.name[:_MAX_NAME], event.time_unix_nano, attributes))
        return events

    def _log(self, wire: Any, scope: RecordScope, allowance: SpanAllowance, large: bool) -> None:
        event = None
        if any(wire.trace_id) and any(wire.span_id):
            name = wire.event_name or self._form.text_at(wire.attributes, "event.name")
            if may_carry_content(name):
                event = read_log_event(
                    trace_id=_id(wire.trace_id, 16, "bad_trace_id"),
                    span_id=_id(wire.span_id, 8, "bad_span_id"),
                    name=name[:_MAX_NAME],
                    time=wire.time_unix_nano or wire.observed_time_unix_nano,
                    attributes=self._attributes(wire.attributes, allowance),
                    body=self._form.value(wire.body, allowance, self.limits.depth),
                )
        if event is None:
            self.decoded.ignored += 1
            return
        if large:
            trim_attributes((event.event.attributes,), self.limits.text)
        self.decoded.events.append(event)

    def _attributes(
        self, pairs: Sequence[Any], allowance: SpanAllowance
    ) -> dict[str, AttributeValue]:
        size = len(pairs)
        if not size:
            return {}
        taken = allowance.take(size, self.limits.attributes)
        return self._form.pairs(
            pairs if taken == size else pairs[:taken], allowance, self.limits.depth
        )


def _id(raw: bytes, size: int, reason: str) -> str:
    if len(raw) != size or not any(raw):
        raise RejectedRecord(reason)
    return raw.hex()


def read_nested(
    items: Sequence[Any], allowance: SpanAllowance, depth: int, form: RecordForm, *, is_map: bool
) -> AttributeValue:
    """Read a list or map of a value; None if it is too deep or a vector."""
    if depth <= 0:
        allowance.dropped += 1
        return None
    size = len(items)
    if size > _MAX_NUMBERS and not is_map:
        first = form.value(items[0], SpanAllowance(0, allowance.limits), 0)
        if isinstance(first, int | float):
            return None
    items = items[: allowance.take(size, size)]
    if is_map:
        return form.pairs(items, allowance, depth - 1)
    return [form.value(item, allowance, depth - 1) for item in items]


def trim_attributes(maps: Iterable[dict[str, AttributeValue]], limit: int) -> int:
    """Remove, in order, the attributes that do not fit `limit` characters, and count them."""
    dropped = 0
    for attributes in maps:
        for key in list(attributes):
            size = len(key) + _length(attributes[key])
            if size > limit:
                del attributes[key]
                dropped += 1
            else:
                limit -= size
    return dropped


def _length(value: AttributeValue) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_length, value))
    if isinstance(value, dict):
        return sum(len(key) + _length(inner) for key, inner in value.items())
    return 0
