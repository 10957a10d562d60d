"""The index event, schema `ragmeter.index/1`: what one run or batch of an indexing job has done.

Events of one index version are summed, so each says what no other event has said: of a job that
reports after every batch, that batch alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from agent.indexing.tokens import Tokens
from agent.ingest.bounds import BOM, TooMuch, check_body, utf16, values_over
from agent.ingest.native import Bad, is_object, parse_array
from agent.trace import Id, Tag, Timestamp

__all__ = ["MAX_BYTES", "SCHEMA", "IndexEvent", "decode", "decode_one", "is_event"]

SCHEMA: Final = "ragmeter.index/1"

MAX_BYTES = 2**19
"""Of one event: a list of 100,000 chunks, and half of what Kafka takes as a message."""

MAX_EVENTS = 1_000
"""Of one body: an indexing job sends one now and then."""

MAX_VALUES = 150_000  # JSON values in one event
MAX_REASONS = 1_000  # as they come; far fewer are kept
MAX_TOKENS = 10_000_000  # of one chunk
MAX_ERRORS = 10
MAX_WHY = 200  # characters

INVALID = "invalid_index_event"


def _number(value: object) -> object:
    """JSON's true is no 1."""
    if isinstance(value, bool):
        raise ValueError("a whole number is needed")
    return value


Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_number)]
"""Sums of a million of these are exact."""

TokenCount = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


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


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class _Counts(_Part):
    """A name that is not known is refused: a count under a name with a slip in it would be missing
    from a sum, and a share too small."""

    model_config = ConfigDict(extra="forbid")


class Documents(_Counts):
    """`no_chunks` of the `processed` gave nothing to embed. Both are needed: a job that does not
    count the second has not found none."""

    processed: Count
    no_chunks: Count

    @model_validator(mode="after")
    def _part_of_all(self) -> Self:
        if self.no_chunks > self.processed:
            raise ValueError("more documents without chunks than were processed")
        return self


class Chunks(_Counts):
    """`skipped` counts by reason; what is neither embedded nor skipped was not reported."""

    attempted: Count
    embedded: Count
    skipped: dict[str, Count] = Field(default={}, max_length=MAX_REASONS)

    @model_validator(mode="after")
    def _part_of_all(self) -> Self:
        if self.embedded + sum(self.skipped.values()) > self.attempted:
            raise ValueError("more chunks embedded and skipped than were attempted")
        return self


class IndexEvent(_Part):
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
    documents: Documents | None = None
    chunks: Chunks | None = None
    tokens_per_chunk: Annotated[dict[TokenCount, Count], BeforeValidator(_counted)] = {}

    @model_validator(mode="after")
    def _tokens_of_chunks(self) -> Self:
        if self.documents is None and self.chunks is None:
            raise ValueError("documents or chunks are needed")
        number = sum(self.tokens_per_chunk.values())
        if number and (self.chunks is None or number > self.chunks.attempted):
            raise ValueError("tokens_per_chunk of more chunks than were attempted")
        return self

    @cached_property
    def tokens(self) -> Tokens:
        """What is kept of `tokens_per_chunk`."""
        return Tokens.of(self.tokens_per_chunk)


def is_event(value: bytes) -> bool:
    """Whether a message is meant as an index event, of whatever version: its `schema` says so.
    The look at the bytes spares every trace a second parsing."""
    if b"ragmeter.index/" not in value or len(value) > MAX_BYTES:
        return False
    try:
        found = from_json(value)
    except ValueError:
        return False
    return isinstance(found, dict) and str(found.get("schema")).startswith("ragmeter.index/")


def decode_one(raw: bytes) -> IndexEvent | Bad:
    """One JSON object."""
    if len(raw) > MAX_BYTES or values_over(raw, MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {MAX_VALUES} JSON values in one event"
        return Bad("too_large", (("", why),), raw)
    try:
        event = IndexEvent.model_validate_json(raw)
    except ValidationError as error:
        return _bad(raw, error)
    _ = event.tokens  # here, and not where a lock is held
    return event


def _bad(raw: bytes, error: ValidationError) -> Bad:
    if error.error_count() > 100 * MAX_ERRORS:  # listing them all would cost more than they say
        return Bad(INVALID, (("", f"{error.error_count()} values are wrong"),), raw)
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    reason = "invalid_json" if errors[0]["type"] == "json_invalid" else INVALID
    found = tuple(
        (".".join(map(str, item["loc"]))[:MAX_WHY], item["msg"][:MAX_WHY])
        for item in errors[:MAX_ERRORS]
    )
    return Bad(reason, found, raw)


def decode(body: bytes) -> Iterator[IndexEvent | Bad]:
    """Every event of a body: a JSON array, JSON lines, or one object. Raises `TooMuch`."""
    body = body.strip().removeprefix(BOM).lstrip()
    check_body(body)
    if not body or utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield Bad("invalid_json" if body else "empty", (("", why),), body)
        return
    items = parse_array(body)
    if items is not None:
        _check_number(len(items))
        for item in items:
            text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            yield decode_one(text.encode("utf-8", "replace"))
        return
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if len(lines) > 1 and not any(map(is_object, lines)):
        lines = [body]  # one object over several lines
    _check_number(len(lines))
    for line in lines:
        yield decode_one(line)


def _check_number(number: int) -> None:
    if number > MAX_EVENTS:
        raise TooMuch(f"more than {MAX_EVENTS} events in one body; send smaller ones")
