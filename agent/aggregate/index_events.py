"""The index event schema `ragmeter.index/1` and its decoder, with exact token statistics of chunks.

How many tokens chunks have: smallest, mean and largest exactly, quantiles within 1 %.

The cells are those of the latency histograms (`ragmeter.windows.log_histogram`), which go from one to a
million when they count thousandths: any two of these can be added up.

The index event, schema `ragmeter.index/1`: what one run or batch of an indexing job has done.

Events of one index version are summed, so each says what no other event has said: of a job that
reports after every batch, that batch alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from ragmeter.ingest.native import (
    BOM,
    BodyLimitExceeded,
    DecodeFailure,
    check_body_limits,
    has_values_over,
    is_json_object,
    is_utf16,
    parse_json_array,
)
from ragmeter.trace import Id, Tag, Timestamp
from ragmeter.windows.log_histogram import cell_index, cell_value

_UNIT = 1000  # tokens: what the histogram takes for a second


@dataclass(slots=True)
class TokenStatistics:
    """Of `number` chunks."""

    number: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0
    cells: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> TokenStatistics:
        """From how many chunks have so many tokens."""
        new = cls()
        for tokens, number in counts.items():
            if number:
                cell = cell_index(tokens / _UNIT)
                new.cells[cell] = new.cells.get(cell, 0) + number
        if new.cells:
            there = [tokens for tokens, number in counts.items() if number]
            new.smallest, new.largest = min(there), max(there)
            new.number = sum(counts.values())
            new.total = sum(tokens * number for tokens, number in counts.items())
        return new

    def add(self, other: TokenStatistics) -> None:
        if not other.number:
            return
        self.smallest = min(self.smallest, other.smallest) if self.number else other.smallest
        self.largest = max(self.largest, other.largest)
        self.number += other.number
        self.total += other.total
        for cell, number in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + number

    @property
    def mean(self) -> float | None:
        return self.total / self.number if self.number else None

    def quantile(self, level: float) -> float | None:
        """The smallest number that so large a share of the chunks does not exceed."""
        if not self.number:
            return None
        rank = level * self.number * (1 - 1e-12)  # 0.95 of 20 is 19, though 0.95 is no binary
        passed = 0
        for cell in sorted(self.cells):
            passed += self.cells[cell]
            if passed >= rank:
                break
        return min(max(cell_value(cell) * _UNIT, self.smallest), self.largest)

    def dump(self) -> list[Any]:
        """JSON-able."""
        cells = sorted(self.cells)
        counts = [self.cells[cell] for cell in cells]
        return [self.number, self.total, self.smallest, self.largest, cells, counts]

    @classmethod
    def load(cls, saved: list[Any]) -> TokenStatistics:
        """The inverse of `dump`."""
        number, total, smallest, largest, cells, counts = saved
        return cls(number, total, smallest, largest, dict(zip(cells, counts, strict=True)))


_SCHEMA: Final = "ragmeter.index/1"

MAX_BYTES = 2**19
"""Of one event: a list of 100,000 chunks, and half of what Kafka takes as a message."""

MAX_EVENTS = 1_000
"""Of one body: an indexing job sends one now and then."""

_MAX_VALUES = 150_000  # JSON values in one event
_MAX_REASONS = 1_000  # as they come; far fewer are kept
_MAX_TOKENS = 10_000_000  # of one chunk
_MAX_ERRORS = 10
_MAX_WHY = 200  # characters

_INVALID = "invalid_index_event"


def _number(value: object) -> object:
    """JSON's true is no 1."""
    if isinstance(value, bool):
        raise ValueError("a whole number is needed")
    return value


_Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_number)]
"""Sums of a million of these are exact."""

_TokenCount = Annotated[int, Field(ge=0, le=_MAX_TOKENS)]


def _counted(value: object) -> object:
    """A list of numbers of tokens as how often each comes; such a mapping as it is."""
    if not isinstance(value, list):
        return value
    found: dict[Any, int] = {}
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int):
            raise ValueError("whole numbers are needed")
        found[item] = found.get(item, 0) + 1
    return found


class _EventPart(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class _Counts(_EventPart):
    """A name that is not known is refused: a count under a name with a slip in it would be missing
    from a sum, and a share too small."""

    model_config = ConfigDict(extra="forbid")


class _DocumentCounts(_Counts):
    """`no_chunks` of the `processed` gave nothing to embed. Both are needed: a job that does not
    count the second has not found none."""

    processed: _Count
    no_chunks: _Count

    @model_validator(mode="after")
    def _part_of_all(self) -> Self:
        if self.no_chunks > self.processed:
            raise ValueError("more documents without chunks than were processed")
        return self


class _ChunkCounts(_Counts):
    """`skipped` counts by reason; what is neither embedded nor skipped was not reported."""

    attempted: _Count
    embedded: _Count
    skipped: dict[str, _Count] = Field(default={}, max_length=_MAX_REASONS)

    @model_validator(mode="after")
    def _part_of_all(self) -> Self:
        if self.embedded + sum(self.skipped.values()) > self.attempted:
            raise ValueError("more chunks embedded and skipped than were attempted")
        return self


class IndexEvent(_EventPart):
    """One event. An index has a name where a service has several."""

    model_config = ConfigDict(title=_SCHEMA, populate_by_name=True)

    schema_: Literal["ragmeter.index/1"] = Field(default="ragmeter.index/1", alias="schema")
    event_id: Id
    service: Id
    timestamp: Timestamp
    index: Annotated[Tag, Field(min_length=1)] = "default"
    index_version: Annotated[Tag, Field(min_length=1)]
    chunker: Tag | None = None
    embedding_model: Tag | None = None
    documents: _DocumentCounts | None = None
    chunks: _ChunkCounts | None = None
    tokens_per_chunk: Annotated[dict[_TokenCount, _Count], BeforeValidator(_counted)] = {}

    @model_validator(mode="after")
    def _tokens_of_chunks(self) -> Self:
        if self.documents is None and self.chunks is None:
            raise ValueError("documents or chunks are needed")
        number = sum(self.tokens_per_chunk.values())
        if number and (self.chunks is None or number > self.chunks.attempted):
            raise ValueError("tokens_per_chunk of more chunks than were attempted")
        return self

    @cached_property
    def tokens(self) -> TokenStatistics:
        """What is kept of `tokens_per_chunk`."""
        return TokenStatistics.of(self.tokens_per_chunk)


def is_index_event(value: bytes) -> bool:
    """Whether a message is meant as an index event, of whatever version: its `schema` says so.
    The look at the bytes spares every trace a second parsing."""
    if b"ragmeter.index/" not in value or len(value) > MAX_BYTES:
        return False
    try:
        found = from_json(value)
    except ValueError:
        return False
    return isinstance(found, dict) and str(found.get("schema")).startswith("ragmeter.index/")


def decode_index_event(raw: bytes) -> IndexEvent | DecodeFailure:
    """One JSON object."""
    if len(raw) > MAX_BYTES or has_values_over(raw, _MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {_MAX_VALUES} JSON values in one event"
        return DecodeFailure("too_large", (("", why),), raw)
    try:
        event = IndexEvent.model_validate_json(raw)
    except ValidationError as error:
        return _describe_failure(raw, error)
    _ = event.tokens  # here, and not where a lock is held
    return event


def _describe_failure(raw: bytes, error: ValidationError) -> DecodeFailure:
    if error.error_count() > 100 * _MAX_ERRORS:  # listing them all would cost more than they say
        return DecodeFailure(_INVALID, (("", f"{error.error_count()} values are wrong"),), raw)
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    reason = "invalid_json" if errors[0]["type"] == "json_invalid" else _INVALID
    found = tuple(
        (".".join(map(str, item["loc"]))[:_MAX_WHY], item["msg"][:_MAX_WHY])
        for item in errors[:_MAX_ERRORS]
    )
    return DecodeFailure(reason, found, raw)


def decode_index_events(body: bytes) -> Iterator[IndexEvent | DecodeFailure]:
    """Every event of a body: a JSON array, JSON lines, or one object. Raises `TooMuch`."""
    body = body.strip().removeprefix(BOM).lstrip()
    check_body_limits(body)
    if not body or is_utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield DecodeFailure("invalid_json" if body else "empty", (("", why),), body)
        return
    items = parse_json_array(body)
    if items is not None:
        _check_number(len(items))
        for item in items:
            text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            yield decode_index_event(text.encode("utf-8", "replace"))
        return
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if len(lines) > 1 and not any(map(is_json_object, lines)):
        lines = [body]  # one object over several lines
    _check_number(len(lines))
    for line in lines:
        yield decode_index_event(line)


def _check_number(number: int) -> None:
    if number > MAX_EVENTS:
        raise BodyLimitExceeded(f"more than {MAX_EVENTS} events in one body; send smaller ones")
