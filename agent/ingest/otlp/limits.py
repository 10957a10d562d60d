"""Limits of one OTLP request, and the loop that decodes its records within them.

Values beyond a limit are left out and counted, never cut silently: a span that lost something shows
it in `Span.dropped`, just as one whose sender's own limits cost attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ragmeter.core.errors import RagmeterError
from ragmeter.ingest.spans import AttributeValue, LogEvent, Span

MAX_NAME = 1_024  # characters of a span's, event's or scope's name; real ones are below 100
MAX_STATUS = 16_384  # characters: OpenInference puts a whole stack trace there, 3 to 8 KB
MAX_TRACE_STATE = 1_024  # characters; W3C asks for 512 to be kept
# A list of numbers longer than this is an embedding or token ids (the smallest common embedding
# has 384). Nobody scores it, and a batch of them is most of a request: left out like bytes.
_MAX_NUMBERS = 256

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class OtlpLimits:
    """Limits of one request, span and value.

    `values` are attributes, events, links and list elements, each 50 to 200 bytes once read.
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
    links: int = 1_000  # of one span; the SDK's own limit is 128
    depth: int = 20  # of lists and maps in a value; messages with tool calls in them have 6
    # Characters of one span or log record. Real retrieval spans have up to 120,000.
    text: int = 4 * 2**20
    # Characters of a resource's attributes: every span is stored with them, and real ones have
    # 300 to 3,000 (a process's command line).
    resource_text: int = 16_384


class UndecodableBody(RagmeterError):
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


class RejectedRecord(RagmeterError):
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


@dataclass(slots=True)
class RecordScope:
    """What the records of one scope share; `resource` are the attributes of the resource."""

    resource: dict[str, AttributeValue]
    name: str = ""
    version: str = ""


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


class RequestDecoder:
    """Decode the records of one request, one at a time, within the limits of the request."""

    __slots__ = ("decoded", "limits", "records", "values_left")

    def __init__(self, limits: OtlpLimits) -> None:
        self.limits = limits
        self.values_left = limits.values
        self.records = 0
        self.decoded = DecodedRequest()

    def decode(
        self,
        records: Iterable[tuple[_Record, RecordScope, int]],
        decode_record: Callable[[_Record, RecordScope, SpanAllowance], Span | LogEvent | None],
    ) -> DecodedRequest:
        """Decode records; one that is broken or too much costs only itself and is counted.

        Args:
            records: Each with its scope and the bytes that bound the length of its texts.
            decode_record: Returns None for a log record without content of a span, and raises
                `RejectedRecord` for a broken record.
        """
        for record, scope, size in records:
            self.records += 1
            if self.records > self.limits.spans:
                self.decoded.reject("too_many_spans")
                continue
            if self.values_left <= 0:
                self.decoded.reject("too_many_values")
                continue
            allowance = self.allow()
            try:
                self._add(decode_record(record, scope, allowance), size)
            except RejectedRecord as error:
                self.decoded.reject(str(error))
            self.settle(allowance)
        return self.decoded

    def _add(self, record: Span | LogEvent | None, size: int) -> None:
        large = size > self.limits.text
        if record is None:
            self.decoded.ignored += 1
        elif isinstance(record, Span):
            if large:
                maps = (record.attributes, *(event.attributes for event in record.events))
                record.dropped += trim_attributes(maps, self.limits.text)
            self.decoded.spans.append(record)
        else:
            if large:
                trim_attributes((record.event.attributes,), self.limits.text)
            self.decoded.events.append(record)

    def allow(self) -> SpanAllowance:
        """Return the allowance of one more span, resource or log record."""
        return SpanAllowance(min(self.values_left, self.limits.span_values), self.limits)

    def settle(self, allowance: SpanAllowance) -> None:
        """Deduct what was taken from an allowance from that of the request."""
        self.values_left -= allowance.given - allowance.left


def is_vector(length: int, first: object) -> bool:
    """Return whether a list of that length with that first item is left out as a vector."""
    return length > _MAX_NUMBERS and isinstance(first, int | float)


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
