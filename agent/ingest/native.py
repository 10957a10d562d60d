"""Native JSON to `Trace`: one object, an array, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from agent.ingest.bounds import BOM, MAX_TRACE_VALUES, TooMuch, check_body, utf16, values_over
from agent.trace import Trace

__all__ = ["Bad", "Good", "decode", "decode_one", "is_object", "parse_array"]

MAX_ERRORS = 10  # of one item: a broken array of a thousand passages needs no thousand lines
MAX_LISTED = 1_000  # more are not looked at: the list of a million is a gigabyte
MAX_REASON = 200  # characters


@dataclass(frozen=True, slots=True)
class Good:
    """A valid trace and the JSON bytes to store for it."""

    trace: Trace
    body: bytes


@dataclass(frozen=True, slots=True)
class Bad:
    """What could not be read. `reason` is a short code, `errors` name field and why."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    raw: bytes

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "errors": [{"field": field, "why": why} for field, why in self.errors],
        }


def _bad_fields(raw: bytes, error: ValidationError) -> Bad:
    if error.error_count() > MAX_LISTED:
        return Bad("invalid_trace", (("", f"{error.error_count()} values are wrong"),), raw)
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors and errors[0]["type"] == "json_invalid":
        return Bad("invalid_json", (("", errors[0]["msg"][:MAX_REASON]),), raw)
    found = tuple(
        (".".join(map(str, item["loc"]))[:MAX_REASON], item["msg"][:MAX_REASON])
        for item in errors[:MAX_ERRORS]
    )
    return Bad("invalid_trace", found, raw)


def _too_large(raw: bytes, limit: int) -> Bad:
    why = f"{len(raw)} bytes are over the limit of {limit} (limits.trace_bytes)"
    return Bad("too_large", (("", why),), raw)


def _too_many(raw: bytes) -> Bad:
    return Bad("too_large", (("", f"more than {MAX_TRACE_VALUES} JSON values in one trace"),), raw)


def decode_one(line: bytes, limit: int) -> Good | Bad:
    """One JSON object of at most `limit` bytes."""
    if len(line) > limit:
        return _too_large(line, limit)
    if values_over(line, MAX_TRACE_VALUES):
        return _too_many(line)
    try:
        return Good(Trace.model_validate_json(line), line)
    except ValidationError as error:
        return _bad_fields(line, error)


def _decode_item(item: object, limit: int) -> Good | Bad:
    raw = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    if len(raw) > limit:
        return _too_large(raw, limit)
    if not isinstance(item, dict):
        return Bad("invalid_trace", (("", "Input should be an object"),), raw)
    if values_over(raw, MAX_TRACE_VALUES):
        return _too_many(raw)
    try:
        trace = Trace.model_validate(item)
    except ValidationError as error:
        return _bad_fields(raw, error)
    # dumped anew: NaN in free-form metadata would make the stored bytes unreadable
    return Good(trace, trace.model_dump_json(exclude_none=True).encode())


def decode(body: bytes, limit: int, most: int | None = None) -> Iterator[Good | Bad]:
    """Every item of a body, in order; empty lines and a byte order mark are skipped.

    A body is a JSON array, or JSON lines when any of its lines is an object by itself (a broken
    line, be it the first, must not cost the rest), or else one object, perhaps printed over
    several lines. A body that is no JSON at all is one `Bad`.

    With `most`, a body of more items, or with so many values that reading them would cost too
    much, raises `TooMuch` before any item is given.
    """
    body = body.strip().removeprefix(BOM).lstrip()
    if most is not None:
        check_body(body)
    if not body or utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield Bad("invalid_json" if body else "empty", (("", why),), body)
        return
    items: list[Any] | None = parse_array(body)
    lines: list[bytes] = []
    if items is None:
        lines = [line for line in body.splitlines() if line.strip()]
        if len(lines) > 1 and not any(map(is_object, lines)):
            lines = [body]
    if most is not None and max(len(lines), len(items or [])) > most:
        raise TooMuch(f"more than {most} items in one body; send smaller ones")
    for item in items or ():
        yield _decode_item(item, limit)
    for line in lines:
        yield decode_one(line.strip(), limit)


def parse_array(text: bytes) -> list[Any] | None:
    """The items of a JSON array, or None where `text` is anything else."""
    if text.lstrip()[:1] != b"[":
        return None
    try:
        items: list[Any] = from_json(text)
    except ValueError:
        return None
    return items


def is_object(line: bytes) -> bool:
    """Whether `line` is one whole JSON object."""
    try:
        return isinstance(from_json(line), dict)
    except ValueError:
        return False
