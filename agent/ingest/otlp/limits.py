"""Limits of one OTLP request, the account of what it may still hold, and the result of decoding it.

How much one request, one span and one value may hold, and the count of what is left.

What lies beyond is left out and counted, never cut silently: a span that lost something says so
in `Span.dropped`, just as one whose sender's own limits have cost attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ragmeter.ingest.spans import AttributeValue, LogEvent, Span

MAX_NAME = 1_024  # characters of a span's, event's or scope's name; real ones are below 100
MAX_STATUS = 16_384  # characters: OpenInference puts a whole stack trace there, 3 to 8 KB
MAX_TRACE_STATE = 1_024  # characters; W3C asks for 512 to be kept
# A list of numbers longer than this is an embedding or token ids (the smallest common embedding
# has 384). Nobody scores it, and a batch of them is most of a request: left out like bytes.
_MAX_NUMBERS = 256


@dataclass(frozen=True, slots=True)
class OtlpLimits:
    """`values` are attributes, events, links and list elements, each 50 to 200 bytes once read."""

    spans: int = 100_000
    """Of one request; the Collector's batches have 8,192. What has valid ids is 34 bytes."""
    values: int = 750_000
    """Of one request: 150 MB at worst. 20 MB of RAG spans have 60,000, and of the shortest
    attributes that occur (40 bytes) 500,000."""
    span_values: int = 100_000
    """Of one span: 20 MB at worst. 40 documents with ten fields each are 400."""
    attributes: int = 10_000
    """Of one span or event: to this OpenInference raises the SDK's own limit of 128."""
    events: int = 10_000
    """Of one span: a stream may write one for every token."""
    links: int = 1_000
    """Of one span; the SDK's own limit is 128."""
    depth: int = 20
    """Of lists and maps in a value; messages with tool calls in them have 6."""
    text: int = 4 * 2**20
    """Characters of one span or log record. Real retrieval spans have up to 120,000."""
    resource_text: int = 16_384
    """Characters of a resource's attributes: every span is stored with them, and real ones have
    300 to 3,000 (a process's command line)."""


class SpanAllowance:
    """What one span (or resource, or log record) may still take, and what it had to leave out."""

    __slots__ = ("dropped", "given", "left")

    def __init__(self, given: int) -> None:
        self.given = given
        self.left = given
        self.dropped = 0

    def take(self, wanted: int, most: int) -> int:
        """How many of `wanted` values may be read."""
        taken = min(wanted, most, self.left)
        self.left -= taken
        self.dropped += wanted - taken
        return taken


def is_vector(length: int, first: object) -> bool:
    """Whether a list of that length that begins with `first` is left out as a vector."""
    return length > _MAX_NUMBERS and isinstance(first, int | float)


def _text(value: AttributeValue) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_text, value))
    if isinstance(value, dict):
        return sum(len(key) + _text(inner) for key, inner in value.items())
    return 0


def trim_attributes(maps: Iterable[dict[str, AttributeValue]], limit: int) -> int:
    """Takes out, in order, the attributes that do not fit `limit` characters; how many."""
    dropped = 0
    for attributes in maps:
        for key in list(attributes):
            size = len(key) + _text(attributes[key])
            if size > limit:
                del attributes[key]
                dropped += 1
            else:
                limit -= size
    return dropped


class UndecodableBody(Exception):
    """Nothing of a body could be read. `reason` is a short code, the text says what is wrong.

    `too_large` is a body that holds more than one may (413), anything else is broken (400).
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason

    @property
    def too_large(self) -> bool:
        return self.reason == "too_large"


class RejectedRecord(Exception):
    """One span or log record that cannot be read; the text is the reason's code."""


@dataclass(slots=True)
class DecodedRequest:
    """`spans` of a trace request, `events` of a log request. `rejected` are spans or log records
    that could not be read; `ignored` log records are in order and carry no content of a span."""

    spans: list[Span] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    rejected: int = 0
    ignored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def reject(self, reason: str, count: int = 1) -> None:
        self.rejected += count
        self.reasons[reason] += count

    @property
    def message(self) -> str:
        """What was rejected, for the sender; empty where nothing was."""
        return ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())


class RequestAllowance:
    """The values that a request may still hold, handed out one span at a time."""

    __slots__ = ("left", "limits", "records")

    def __init__(self, limits: OtlpLimits) -> None:
        self.limits = limits
        self.left = limits.values
        self.records = 0

    def refusal(self) -> str:
        """Why one more span or log record is not read, "" where it is. Called once for each."""
        self.records += 1
        if self.records > self.limits.spans:
            return "too_many_spans"
        return "" if self.left > 0 else "too_many_values"

    def room(self) -> SpanAllowance:
        return SpanAllowance(min(self.left, self.limits.span_values))

    def close(self, room: SpanAllowance) -> None:
        """What was taken from `room` is gone from the request's account."""
        self.left -= room.given - room.left
