"""How much one request, one span and one value may hold, and the count of what is left.

What lies beyond is left out and counted, never cut silently: a span that lost something says so
in `Span.dropped`, just as one whose sender's own limits have cost attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.ingest.spans import Value

__all__ = ["Limits", "Room", "is_vector", "trim"]

MAX_NAME = 1_024  # characters of a span's, event's or scope's name; real ones are below 100
MAX_STATUS = 16_384  # characters: OpenInference puts a whole stack trace there, 3 to 8 KB
MAX_TRACE_STATE = 1_024  # characters; W3C asks for 512 to be kept
# A list of numbers longer than this is an embedding or token ids (the smallest common embedding
# has 384). Nobody scores it, and a batch of them is most of a request: left out like bytes.
MAX_NUMBERS = 256


@dataclass(frozen=True, slots=True)
class Limits:
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


class Room:
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
    return length > MAX_NUMBERS and isinstance(first, int | float)


def _text(value: Value) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_text, value))
    if isinstance(value, dict):
        return sum(len(key) + _text(inner) for key, inner in value.items())
    return 0


def trim(maps: Iterable[dict[str, Value]], limit: int) -> int:
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
