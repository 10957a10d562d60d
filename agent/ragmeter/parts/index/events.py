"""The index event, schema `ragmeter.index/1`: the result of one run or batch of an indexing job.

Events of one index version are summed, so each holds what no other event has: a job that reports
after every batch reports that batch alone. The numbers of tokens of chunks are summed with exact
minimum, mean and maximum and with quantiles within 1 %. Their cells are those of the latency
histograms (`ragmeter.windows.log_histogram`), which reach from one to a million if they count
thousandths.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ragmeter.ingest.native import DecodeFailure, has_values_over, split_body
from ragmeter.trace import Id, Tag, Timestamp
from ragmeter.windows.log_histogram import cell_index, cell_value

SCHEMA: Final = "ragmeter.index/1"

# Of one event: a list of 100,000 chunks, and half of what Kafka takes as a message.
MAX_BYTES = 2**19

MAX_EVENTS = 1_000  # of one body: an indexing job sends one now and then

_MAX_VALUES = 150_000  # JSON values in one event
_MAX_NAMES = 1_000  # reasons, and types of documents, as they come; far fewer are kept
_MAX_TOKENS = 10_000_000  # of one chunk
_TOKEN_UNIT = 1000  # tokens that the histogram takes for a second

_INVALID = "invalid_index_event"


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):  # JSON's true is no 1
        raise ValueError("a whole number is needed")
    return value


def _count_values(value: object) -> object:
    """Count the values of a list; a mapping is returned as it is."""
    if not isinstance(value, list):
        return value
    if any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise ValueError("whole numbers are needed")
    return Counter(value)


# Sums of a million of these are exact.
_Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_reject_bool)]

_TokenCount = Annotated[int, Field(ge=0, le=_MAX_TOKENS)]


@dataclass(slots=True)
class TokenStatistics:
    """The numbers of tokens that `number` chunks have; `cells` are those of a histogram."""

    number: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0
    cells: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> TokenStatistics:
        """Return the statistics of how many chunks have how many tokens."""
        present = {tokens: number for tokens, number in counts.items() if number}
        if not present:
            return cls()
        total = sum(tokens * number for tokens, number in present.items())
        cells: Counter[int] = Counter()
        for tokens, number in present.items():
            cells[cell_index(tokens / _TOKEN_UNIT)] += number
        return cls(sum(present.values()), total, min(present), max(present), cells)

    def add(self, other: TokenStatistics) -> None:
        """Add those of other chunks."""
        if not other.number:
            return
        self.smallest = min(self.smallest, other.smallest) if self.number else other.smallest
        self.largest = max(self.largest, other.largest)
        self.number += other.number
        self.total += other.total
        self.cells.update(other.cells)

    @property
    def mean(self) -> float | None:
        """The mean number; None without chunks."""
        return self.total / self.number if self.number else None

    def quantile(self, level: float) -> float | None:
        """Return the smallest number that this share of the chunks does not exceed."""
        if not self.number:
            return None
        rank = level * self.number * (1 - 1e-12)  # 0.95 of 20 is 19, though 0.95 is no binary
        below = 0
        for cell in sorted(self.cells):
            below += self.cells[cell]
            if below >= rank:
                break
        return min(max(cell_value(cell) * _TOKEN_UNIT, self.smallest), self.largest)


class _EventPart(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class _Counts(_EventPart):
    # Unknown names are refused: a count under a misspelt name would be missing from a sum.
    model_config = ConfigDict(extra="forbid")


class DocumentCounts(_Counts):
    """`no_chunks` of the `processed` documents gave nothing to embed.

    Both are needed: a job that does not count the second does not know that there are none.
    """

    processed: _Count
    no_chunks: _Count

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        if self.no_chunks > self.processed:
            raise ValueError("more documents without chunks than were processed")
        return self


class _AllDocumentCounts(DocumentCounts):
    # `by_type` counts part or all of the documents again; the rest has no type.

    by_type: dict[str, DocumentCounts] = Field(default={}, max_length=_MAX_NAMES)

    @model_validator(mode="after")
    def _check_types(self) -> Self:
        untyped = self.processed - sum(counts.processed for counts in self.by_type.values())
        without = self.no_chunks - sum(counts.no_chunks for counts in self.by_type.values())
        if not 0 <= without <= untyped:
            raise ValueError("by_type does not fit the numbers of all documents")
        return self


class _ChunkCounts(_Counts):
    # `skipped` counts by reason; chunks neither embedded nor skipped were not reported.

    attempted: _Count
    embedded: _Count
    skipped: dict[str, _Count] = Field(default={}, max_length=_MAX_NAMES)

    @model_validator(mode="after")
    def _check_total(self) -> Self:
        if self.embedded + sum(self.skipped.values()) > self.attempted:
            raise ValueError("more chunks embedded and skipped than were attempted")
        return self


class IndexEvent(_EventPart):
    """One event. An index has a name where a service has several."""

    model_config = ConfigDict(title=SCHEMA, populate_by_name=True)

    schema_: Literal["ragmeter.index/1"] = Field(default="ragmeter.index/1", alias="schema")
    event_id: Id
    service: Id
    timestamp: Timestamp
    index: Annotated[Tag, Field(min_length=1)] = "default"
    index_version: Annotated[Tag, Field(min_length=1)]
    chunker: Tag | None = None
    embedding_model: Tag | None = None
    documents: _AllDocumentCounts | None = None
    chunks: _ChunkCounts | None = None
    tokens_per_chunk: Annotated[dict[_TokenCount, _Count], BeforeValidator(_count_values)] = {}

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        if self.documents is None and self.chunks is None:
            raise ValueError("documents or chunks are needed")
        number = sum(self.tokens_per_chunk.values())
        if number and (self.chunks is None or number > self.chunks.attempted):
            raise ValueError("tokens_per_chunk of more chunks than were attempted")
        return self

    @cached_property
    def tokens(self) -> TokenStatistics:
        """The statistics of `tokens_per_chunk`."""
        return TokenStatistics.of(self.tokens_per_chunk)


def decode_index_event(raw: bytes) -> IndexEvent | DecodeFailure:
    """Decode one JSON object."""
    if len(raw) > MAX_BYTES or has_values_over(raw, _MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {_MAX_VALUES} JSON values in one event"
        return DecodeFailure.of_whole("too_large", why, raw)
    try:
        event = IndexEvent.model_validate_json(raw)
    except ValidationError as error:
        return DecodeFailure.of_validation(_INVALID, error, raw)
    _ = event.tokens  # computed here, and not where a lock is held
    return event


def decode_index_events(body: bytes) -> Iterator[IndexEvent | DecodeFailure]:
    """Decode every event of a body: a JSON array, JSON lines, or one object.

    Raises:
        BodyLimitExceeded: The body is too large or has too many events.
    """
    items = split_body(body, MAX_EVENTS)
    if isinstance(items, DecodeFailure):
        yield items
        return
    for item in items:
        if isinstance(item, bytes):
            yield decode_index_event(item)
        else:
            text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            yield decode_index_event(text.encode("utf-8", "replace"))
