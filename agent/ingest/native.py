"""Decode native trace JSON (one object, an array or JSON lines) within bounds that are checked before parsing.

What a body may hold, told from its bytes before anything is parsed.

A byte of JSON may become a hundred bytes of objects (`[{},{},...`): the size of a body alone does
not bound what reading it costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from ragmeter.trace import Trace

MAX_ITEMS = 100_000  # of one body; 20 MB of ordinary traces are 4,000
# An empty object or a short key costs about 100 bytes once parsed, so these are about 100 MB a
# body and 20 MB a trace; 20 MB of ordinary traces hold 400,000 values. The first also bounds the
# work: 5 us for a value that is refused.
MAX_VALUES = 1_000_000
MAX_TRACE_VALUES = 200_000
BOM = b"\xef\xbb\xbf"

# A JSON string, or what is left where it never ends: it matches at every quote, so it is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class BodyLimitExceeded(Exception):
    """A body with more items or values than one may have; the text says which."""


def is_utf16(head: bytes) -> bool:
    """Whether bytes begin like UTF-16 (or 32): with its mark, or JSON with every other byte 0."""
    return head[:2] in (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def has_values_over(text: bytes, most: int) -> bool:
    """Whether JSON holds more than about `most` values: commas and brackets outside of strings."""
    if _separators(text) <= most:  # the strings' own ones counted too: nearly always the end of it
        return False
    # cutting strings out costs 90 bytes each; most quotes in texts are escaped and no string's end
    if text.count(b'"') - text.count(b'\\"') > 2 * most:
        return True
    return _separators(_STRING.sub(b"", text)) > most


def check_body_limits(body: bytes) -> None:
    """Raises `TooMuch` for a body that must not be split into lines or parsed at once."""
    lines = body.count(b"\n") + body.count(b"\r")
    if lines > MAX_VALUES:
        raise BodyLimitExceeded(f"more than {MAX_VALUES} lines in one body; send smaller ones")
    if has_values_over(body, MAX_VALUES):
        raise BodyLimitExceeded(
            f"more than {MAX_VALUES} JSON values in one body; send smaller ones"
        )


MAX_ERRORS = 10  # of one item: a broken array of a thousand passages needs no thousand lines
MAX_LISTED = 1_000  # more are not looked at: the list of a million is a gigabyte
MAX_REASON = 200  # characters


@dataclass(frozen=True, slots=True)
class DecodedTrace:
    """A valid trace and the JSON bytes to store for it."""

    trace: Trace
    body: bytes


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """What could not be read. `reason` is a short code, `errors` name field and why."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    raw: bytes

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "errors": [{"field": field, "why": why} for field, why in self.errors],
        }


def _bad_fields(raw: bytes, error: ValidationError) -> DecodeFailure:
    if error.error_count() > MAX_LISTED:
        return DecodeFailure(
            "invalid_trace", (("", f"{error.error_count()} values are wrong"),), raw
        )
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors and errors[0]["type"] == "json_invalid":
        return DecodeFailure("invalid_json", (("", errors[0]["msg"][:MAX_REASON]),), raw)
    found = tuple(
        (".".join(map(str, item["loc"]))[:MAX_REASON], item["msg"][:MAX_REASON])
        for item in errors[:MAX_ERRORS]
    )
    return DecodeFailure("invalid_trace", found, raw)


def _too_large(raw: bytes, limit: int) -> DecodeFailure:
    why = f"{len(raw)} bytes are over the limit of {limit} (limits.trace_bytes)"
    return DecodeFailure("too_large", (("", why),), raw)


def _too_many(raw: bytes) -> DecodeFailure:
    return DecodeFailure(
        "too_large", (("", f"more than {MAX_TRACE_VALUES} JSON values in one trace"),), raw
    )


def decode_trace(line: bytes, limit: int) -> DecodedTrace | DecodeFailure:
    """One JSON object of at most `limit` bytes."""
    if len(line) > limit:
        return _too_large(line, limit)
    if has_values_over(line, MAX_TRACE_VALUES):
        return _too_many(line)
    try:
        return DecodedTrace(Trace.model_validate_json(line), line)
    except ValidationError as error:
        return _bad_fields(line, error)


def _decode_item(item: object, limit: int) -> DecodedTrace | DecodeFailure:
    raw = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    if len(raw) > limit:
        return _too_large(raw, limit)
    if not isinstance(item, dict):
        return DecodeFailure("invalid_trace", (("", "Input should be an object"),), raw)
    if has_values_over(raw, MAX_TRACE_VALUES):
        return _too_many(raw)
    try:
        trace = Trace.model_validate(item)
    except ValidationError as error:
        return _bad_fields(raw, error)
    # dumped anew: NaN in free-form metadata would make the stored bytes unreadable
    return DecodedTrace(trace, trace.model_dump_json(exclude_none=True).encode())


def decode_trace_body(
    body: bytes, limit: int, most: int | None = None
) -> Iterator[DecodedTrace | DecodeFailure]:
    """Every item of a body, in order; empty lines and a byte order mark are skipped.

    A body is a JSON array, or JSON lines when any of its lines is an object by itself (a broken
    line, be it the first, must not cost the rest), or else one object, perhaps printed over
    several lines. A body that is no JSON at all is one `Bad`.

    With `most`, a body of more items, or with so many values that reading them would cost too
    much, raises `TooMuch` before any item is given.
    """
    body = body.strip().removeprefix(BOM).lstrip()
    if most is not None:
        check_body_limits(body)
    if not body or is_utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield DecodeFailure("invalid_json" if body else "empty", (("", why),), body)
        return
    items: list[Any] | None = parse_json_array(body)
    lines: list[bytes] = []
    if items is None:
        lines = [line for line in body.splitlines() if line.strip()]
        if len(lines) > 1 and not any(map(is_json_object, lines)):
            lines = [body]
    if most is not None and max(len(lines), len(items or [])) > most:
        raise BodyLimitExceeded(f"more than {most} items in one body; send smaller ones")
    for item in items or ():
        yield _decode_item(item, limit)
    for line in lines:
        yield decode_trace(line.strip(), limit)


def parse_json_array(text: bytes) -> list[Any] | None:
    """The items of a JSON array, or None where `text` is anything else."""
    if text.lstrip()[:1] != b"[":
        return None
    try:
        items: list[Any] = from_json(text)
    except ValueError:
        return None
    return items


def is_json_object(line: bytes) -> bool:
    """Whether `line` is one whole JSON object."""
    try:
        return isinstance(from_json(line), dict)
    except ValueError:
        return False
