"""Decode native traces from JSON: one object, an array or JSON lines.

A byte of JSON may become a hundred bytes of objects (`[{},{},...`), so that the size of a body does
not bound the cost of parsing it. Its values are therefore counted before anything is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from ragmeter.core.errors import UsageError
from ragmeter.ingest.untidy import read_untidy, replace_half_pairs, validate_untidy
from ragmeter.trace import Trace

MAX_ITEMS = 100_000  # of one body; 20 MB of ordinary traces are 4,000
# An empty object or a short key costs about 100 bytes once parsed, so these are about 100 MB a
# body and 20 MB a trace; 20 MB of ordinary traces hold 400,000 values. The first also bounds the
# work: 5 us for a value that is refused.
MAX_VALUES = 1_000_000
MAX_TRACE_VALUES = 200_000
BOM = b"\xef\xbb\xbf"
PARQUET = b"PAR1"

_MAX_ERRORS = 10  # of one item: a broken array of a thousand passages needs no thousand lines
_MAX_LISTED = 1_000  # a list of a million errors takes a gigabyte
_MAX_REASON = 200  # characters
_OTLP_BEGINS = 500  # bytes within which an OTLP request names what it holds

# A JSON string, or what is left where it never ends: it matches at every quote, so it is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# A line of words or values that are parted as those of a table are.
_TABLE = re.compile(rb"[\w\" .:+-]{1,100}[,;\t][^{}\[\]]*\Z")


class BodyLimitExceeded(UsageError):
    """A body with too many items, lines or values; the text says which."""


class DecodedTrace(NamedTuple):
    """A valid trace and the JSON bytes to store for it."""

    trace: Trace
    body: bytes


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """An item that could not be decoded: a short code, errors as (field, why), and its bytes."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    raw: bytes

    @classmethod
    def of_whole(cls, reason: str, why: str, raw: bytes) -> DecodeFailure:
        """Return a failure that concerns the item as a whole."""
        return cls(reason, (("", why),), raw)

    @classmethod
    def of_validation(cls, reason: str, error: ValidationError, raw: bytes) -> DecodeFailure:
        """Return the first errors of a failed validation; invalid JSON has a reason of its own."""
        if error.error_count() > _MAX_LISTED:
            return cls.of_whole(reason, f"{error.error_count()} values are wrong", raw)
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            reason = "invalid_json"
            try:
                raw.decode()
            except UnicodeDecodeError as wrong:
                why = f"not UTF-8: byte 0x{raw[wrong.start]:02x} at position {wrong.start}"
                if raw.startswith(b"\x1f\x8b"):
                    why += "; it is gzip, which Content-Encoding: gzip has to say"
                return cls.of_whole(reason, why, raw)
            if _TABLE.match(raw):
                why = "no JSON, but a table such as CSV; JSON lines are needed"
                return cls.of_whole(reason, why, raw)
        elif b'"resourceSpans"' in raw[:_OTLP_BEGINS]:
            why = "OTLP, which goes to /v1/traces; `ragmeter inspect` reads files of it"
            return cls.of_whole(reason, why, raw)
        fields = [
            (".".join(map(str, item["loc"]))[:_MAX_REASON], item["msg"][:_MAX_REASON])
            for item in errors[:_MAX_ERRORS]
        ]
        return cls(reason, tuple(fields), raw)

    def describe(self) -> str:
        """Return reason and errors in a line."""
        errors = [f"{field or 'item'}: {why}" for field, why in self.errors]
        return f"{self.reason}: {'; '.join(errors)}"

    def to_dict(self) -> dict[str, Any]:
        """Return reason and errors, without the bytes, as JSON-able values."""
        return {
            "reason": self.reason,
            "errors": [{"field": field, "why": why} for field, why in self.errors],
        }


def decode_trace(line: bytes, limit: int) -> DecodedTrace | DecodeFailure:
    """Decode one JSON object of at most `limit` bytes."""
    failure = _check_size(line, limit)
    if failure is not None:
        return failure
    try:
        return DecodedTrace(Trace.model_validate_json(line), line)
    except ValidationError as error:
        trace = read_untidy(line)
        if trace is None:
            return DecodeFailure.of_validation("invalid_trace", error, line)
        return DecodedTrace(trace, _stored(trace))


def decode_trace_body(
    body: bytes, limit: int, most: int | None = None
) -> Iterator[DecodedTrace | DecodeFailure]:
    """Decode every item, of at most `limit` bytes, of a body as `split_body` takes it.

    Raises:
        BodyLimitExceeded: The body is over a limit; nothing was yielded before.
    """
    if only := _decode_only_item(body, limit):
        yield only
        return
    items = split_body(body, most)
    if isinstance(items, DecodeFailure):
        yield items
        return
    small = len(body) <= min(limit, MAX_TRACE_VALUES)
    for item in items:
        if isinstance(item, bytes):
            yield decode_trace(item, limit)
        else:
            yield _decode_item(item, limit, small=small)


def _decode_only_item(body: bytes, limit: int) -> DecodedTrace | None:
    """Return the trace of an array of one, which senders post one by one; None for all else.

    Its bytes are kept as they came, as those of a line are.
    """
    if len(body) > limit:
        return None
    body = body.strip()
    if not (body.startswith(b"[") and body.endswith(b"]")):
        return None
    item = decode_trace(body[1:-1].strip(), limit)
    return item if isinstance(item, DecodedTrace) else None


def split_body(body: bytes, most: int | None) -> list[Any] | DecodeFailure:
    """Split a body into the bytes of its lines, or the values of its JSON array.

    A body is a JSON array, or JSON lines when any of its lines is an object by itself (a broken
    line, even the first, must not cost the rest), or else one object, perhaps printed over several
    lines. Empty lines and a byte order mark are skipped.

    Raises:
        BodyLimitExceeded: There are more than `most` items, or so many values that parsing costs
            too much. A trusted body (None) is not checked.
    """
    body = body.strip().removeprefix(BOM).lstrip()
    if most is not None:
        lines = body.count(b"\n") + body.count(b"\r")
        if lines > MAX_VALUES or has_values_over(body, MAX_VALUES):
            noun = "lines" if lines > MAX_VALUES else "JSON values"
            raise BodyLimitExceeded(f"more than {MAX_VALUES} {noun} in one body; send smaller ones")
    if not body:
        return DecodeFailure.of_whole("empty", "the body is empty", body)
    if is_utf16(body):
        return DecodeFailure.of_whole("invalid_json", "UTF-16 text; send UTF-8", body)
    items: list[Any] | None = parse_json_array(body)
    if items is None:
        items = [line.strip() for line in body.splitlines() if line.strip()]
        if len(items) > 1 and not any(map(is_json_object, items)):
            items = [body]
    if most is not None and len(items) > most:
        raise BodyLimitExceeded(f"more than {most} items in one body; send smaller ones")
    return items


def iterate_lines(body: bytes, most: int) -> Iterator[bytes]:
    """Yield a body as JSON lines of its items, in pieces; what is no list of items as it is.

    Raises:
        BodyLimitExceeded: As `split_body` does.
    """
    items = split_body(body, most)
    if isinstance(items, DecodeFailure) or items == [body]:
        yield body
        return
    for item in items:
        yield (item if isinstance(item, bytes) else _dump(item)) + b"\n"


def is_utf16(head: bytes) -> bool:
    """Return whether bytes begin with the mark of UTF-16 or 32, or with JSON in it."""
    return head[:2] in (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")


def check_text(head: bytes, name: str) -> None:
    """Raise an OSError if a file begins as UTF-16, or as Parquet, zstd, xz, bzip2 or zip do."""
    if is_utf16(head):
        raise OSError(f"{name}: UTF-16 text; UTF-8 is needed")
    if head.startswith(PARQUET):
        raise OSError(f"{name}: Parquet, which only `ragmeter report` reads; JSON lines are needed")
    if head.startswith((b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\3\4")):
        raise OSError(f"{name}: compressed, but not by gzip; unpack it first")


def parse_json_array(text: bytes) -> list[Any] | None:
    """Return the items of a JSON array, or None for any other text."""
    if text.lstrip()[:1] != b"[":
        return None
    try:
        items: list[Any] = from_json(replace_half_pairs(text))
    except ValueError:
        return None
    return items


def is_json_object(line: bytes) -> bool:
    """Return whether a line is one whole JSON object."""
    try:
        return isinstance(from_json(replace_half_pairs(line)), dict)
    except ValueError:
        return False


def has_values_over(text: bytes, most: int) -> bool:
    """Return whether JSON has more than about `most` commas and brackets outside strings."""
    # the size decides nearly always, separators with those in strings else
    if len(text) <= most or _separators(text) <= most:
        return False
    # cutting strings out costs 90 bytes each; most quotes in texts are escaped and no string's end
    if text.count(b'"') - text.count(b'\\"') > 2 * most:
        return True
    return _separators(_STRING.sub(b"", text)) > most


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _check_size(raw: bytes, limit: int) -> DecodeFailure | None:
    if len(raw) > limit:
        why = f"{len(raw)} bytes are over the limit of {limit} (limits.trace_bytes)"
    elif has_values_over(raw, MAX_TRACE_VALUES):
        why = f"more than {MAX_TRACE_VALUES} JSON values in one trace"
    else:
        return None
    return DecodeFailure.of_whole("too_large", why, raw)


def _dump(item: object) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _decode_item(item: object, limit: int, *, small: bool) -> DecodedTrace | DecodeFailure:
    """Decode an item of an array; one of a `small` body is within all limits."""
    if not small and (failure := _check_size(_dump(item), limit)):
        return failure
    if not isinstance(item, dict):
        return DecodeFailure.of_whole("invalid_trace", "Input should be an object", _dump(item))
    try:
        trace = Trace.model_validate(item)
    except ValidationError as error:
        tidied = validate_untidy(item)
        if tidied is None:
            return DecodeFailure.of_validation("invalid_trace", error, _dump(item))
        trace = tidied
    return DecodedTrace(trace, _stored(trace))


def _stored(trace: Trace) -> bytes:
    """Dump a trace anew: NaN in free-form metadata would make the bytes as they came unreadable."""
    return trace.model_dump_json(exclude_none=True).encode()
