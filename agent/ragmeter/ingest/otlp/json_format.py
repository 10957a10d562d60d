"""Decode OTLP/JSON export requests of spans and log records, in bounded memory.

The rules are those of OTLP/JSON (hex ids, numbers for enums, int64 as text) and of plain protobuf
JSON (base64 ids, names for enums, keys in snake case), since senders mix them up. Tempo's `batches`
and `instrumentationLibrarySpans` are layers of a request under older names.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from pydantic_core import from_json

from ragmeter.ingest.native import BOM
from ragmeter.ingest.otlp.foreign_forms import find_foreign_form, find_foreign_text
from ragmeter.ingest.otlp.reader import (
    DecodedRequest,
    OtlpLimits,
    RecordForm,
    RecordScope,
    RejectedRecord,
    RequestReader,
    SpanAllowance,
    UndecodableBody,
    read_nested,
)
from ragmeter.ingest.spans import AttributeValue

# What the parsed objects of one body may take, by the estimate below: 20 MB of the shortest
# attributes that occur (70 bytes each) come to 190 MB, of RAG spans to 40 MB.
MAX_TREE = 256 * 2**20
_OBJECT = 250  # bytes: a dict with one key that no other has
_VALUE = 64  # bytes: a short string or float, and its place in the list or dict

# Strings (or what is left where one never ends), or a mark that a value begins at.
_MARK = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))++|([{\[,])', re.DOTALL)

# Half a surrogate pair, which no UTF-8 can hold: a JavaScript sender that cuts a text inside an
# emoji writes it.
_HIGH = rb"[89abAB][0-9a-fA-F]{2}"
_LOW = rb"[c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)
_MAX_REPAIRED = 100_000  # of them in one body: a microsecond each; real bodies have one a text
_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)
_MAX_DIGITS = 64  # characters of a number written as text; a nanosecond time has 19
_INT64 = 2**63
_UINT64 = 2**64
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")
# the keys of the three layers of a request
_SPANS = (("resourceSpans", "batches"), ("scopeSpans", "instrumentationLibrarySpans"), ("spans",))
# of a native trace, a span, a list of spans or Jaeger's JSON, which are no request
_NO_REQUEST = ("trace_id", "traceId", "traceID", "spans", "data", "traces")
_LOGS = (("resourceLogs",), ("scopeLogs", "instrumentationLibraryLogs"), ("logRecords", "logs"))


def is_json_body(body: bytes) -> bool:
    """Return whether a body of unknown form begins like JSON.

    Protobuf begins with the tag of its only field, 0x0a: a line feed, after which any length may
    look like JSON.
    """
    return body[:1] != b"\n" and body[:64].removeprefix(BOM).lstrip(b" \t\r\n")[:1] == b"{"


def parse_json_body(body: bytes) -> Any:
    """Parse a body; if a key occurs twice, the last value counts.

    Invalid JSON that senders really write is repaired once parsing failed: bytes that are no UTF-8,
    halves of surrogate pairs, control characters in strings.

    Raises:
        UndecodableBody: The body is no JSON, or would take too much memory.
    """
    _check_size(body)
    body = body.removeprefix(BOM)
    try:
        return from_json(body, cache_strings="keys")
    except ValueError:
        pass
    body = body.decode(errors="replace").encode().translate(_CONTROLS)
    try:
        repaired = _LONE_SURROGATE.sub(_repair, body, _MAX_REPAIRED)
        return from_json(repaired, cache_strings="keys")
    except ValueError as error:
        raise UndecodableBody("bad_json", f"the body is no JSON: {error}") from None


def _repair(escape: re.Match[bytes]) -> bytes:
    body = escape.string
    before = escape.start()
    while before and body[before - 1] == ord("\\"):
        before -= 1
    # after an odd number of others, this backslash is itself escaped and begins no escape
    return escape[0] if (escape.start() - before) % 2 else rb"\ufffd"


def _check_size(body: bytes) -> None:
    values = body.count(b",") + body.count(b"[")
    if _VALUE * values + _OBJECT * body.count(b"{") <= MAX_TREE:  # those in strings counted too
        return
    size = 0
    for mark in _MARK.finditer(body):
        if mark.lastindex:
            size += _OBJECT if mark[1] == b"{" else _VALUE
            if size > MAX_TREE:
                raise UndecodableBody("too_large", "too many JSON values in one body")


def _field(item: dict[str, Any], *names: str) -> Any:
    """Return the first value that is not null; names in camel case may be in snake case too."""
    for name in names:
        value = item.get(name)
        if value is None:
            value = item.get(_snake_case(name))
        if value is not None:
            return value
    return None


@cache
def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def _list(item: dict[str, Any], *names: str) -> list[Any]:
    """Return the list under the first of `names` that is present, empty for any other value."""
    value = _field(item, *names)
    return value if isinstance(value, list) else []


def _id(raw: object, size: int) -> bytes:
    """Return an id of `size` bytes in hex or base64; other values become one that is no id."""
    if not isinstance(raw, str):
        return b"?"
    try:
        if len(raw) == 2 * size or not raw:
            return bytes.fromhex(raw)
        letters = raw.rstrip("=") if len(raw) <= 2 * size else ""
        letters = letters.replace("-", "+").replace("_", "/")  # either alphabet, padded or not
        return binascii.a2b_base64(letters + "=" * (-len(letters) % 4), strict_mode=True) or b"?"
    except ValueError:
        return b"?"


def _integer(raw: object) -> int | None:
    if isinstance(raw, str):
        if len(raw) > _MAX_DIGITS:
            return None
        try:
            return int(raw)
        except ValueError:
            raw = _float(raw)
    if isinstance(raw, float):
        return int(raw) if math.isfinite(raw) else None
    if isinstance(raw, dict):  # how JavaScript's protobuf library writes 64 bits
        low, high = raw.get("low"), raw.get("high")
        if isinstance(low, int) and isinstance(high, int):
            return ((high & 0xFFFFFFFF) << 32) | (low & 0xFFFFFFFF)
        return None
    return raw if isinstance(raw, int) else None


def _float(raw: object) -> float | None:
    """Return a number, also of "NaN", "Infinity" and "-Infinity" as OTLP/JSON writes them."""
    if isinstance(raw, str) and len(raw) > _MAX_DIGITS:
        return None
    try:
        return float(raw) if isinstance(raw, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _nanoseconds(raw: object) -> int:
    """Return a Unix time in nanoseconds, 0 for any value that is no time."""
    value = _integer(raw)
    return value if value is not None and 0 <= value < _UINT64 else 0


def _count(raw: object) -> int:
    """Return a count within 32 bits, 0 for any value that is no number."""
    value = _integer(raw)
    return min(max(value or 0, 0), 2**32 - 1)


def _enum(raw: object, prefix: str, names: tuple[str, ...]) -> int:
    """Return the number of an enum value, given as number or name; 0 for an unknown name."""
    if isinstance(raw, str):
        name = raw.strip().upper().removeprefix(prefix)
        if name in names:
            return names.index(name)
    return _integer(raw) or 0


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""


def _pair_list(raw: object) -> Sequence[Any]:
    """Return a list of attributes; anything else but null counts as one that is lost."""
    if isinstance(raw, list):
        return raw
    return () if raw is None else (None,)


def _event_list(raw: object) -> Sequence[JsonMessage | None]:
    events = raw if isinstance(raw, list) else ()
    return [JsonMessage(event) if isinstance(event, dict) else None for event in events]


class _Field:
    """A field of a message: its name in JSON, how it is read, and what it is without a value."""

    __slots__ = ("_empty", "_key", "_name", "_read")

    def __init__(self, key: str, read: Callable[[Any], Any], empty: object) -> None:
        self._key = key
        self._read = read
        self._empty = empty

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: JsonMessage, owner: type) -> Any:
        value = message.item.get(self._key)
        if value is None:
            value = message.item.get(self._name)
        return self._empty if value is None else self._read(value)


class JsonMessage:
    """A JSON object with the fields of its protobuf message; absent and odd ones are empty.

    Raises:
        RejectedRecord: It is no JSON object.
    """

    __slots__ = ("item",)

    trace_id = _Field("traceId", partial(_id, size=16), b"")
    span_id = _Field("spanId", partial(_id, size=8), b"")
    parent_span_id = _Field("parentSpanId", partial(_id, size=8), b"")
    name = _Field("name", _text, "")
    kind = _Field("kind", partial(_enum, prefix="SPAN_KIND_", names=_KINDS), 0)
    start_time_unix_nano = _Field("startTimeUnixNano", _nanoseconds, 0)
    end_time_unix_nano = _Field("endTimeUnixNano", _nanoseconds, 0)
    time_unix_nano = _Field("timeUnixNano", _nanoseconds, 0)
    observed_time_unix_nano = _Field("observedTimeUnixNano", _nanoseconds, 0)
    code = _Field("code", partial(_enum, prefix="STATUS_CODE_", names=_STATUSES), 0)
    message = _Field("message", _text, "")
    attributes = _Field("attributes", _pair_list, ())
    dropped_attributes_count = _Field("droppedAttributesCount", _count, 0)
    events = _Field("events", _event_list, ())
    dropped_events_count = _Field("droppedEventsCount", _count, 0)
    trace_state = _Field("traceState", _text, "")
    event_name = _Field("eventName", _text, "")
    body = _Field("body", lambda raw: raw, None)

    def __init__(self, item: object) -> None:
        if not isinstance(item, dict):
            raise RejectedRecord("unreadable")
        self.item = item

    @property
    def status(self) -> JsonMessage:
        """The status, without fields where there is none."""
        status = self.item.get("status")
        return JsonMessage(status if isinstance(status, dict) else {})


def _pairs(items: Sequence[Any], allowance: SpanAllowance, depth: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    for item in items:
        try:
            key = item["key"]
            inner = item.get("value")
        except (TypeError, KeyError, AttributeError):
            allowance.dropped += 1
            continue
        if isinstance(key, str):
            attributes[key] = _value(inner, allowance, depth)
        else:
            allowance.dropped += 1
    return attributes


def _value(raw: object, allowance: SpanAllowance, depth: int) -> AttributeValue:
    """Read an `AnyValue`, with `depth` levels of lists and maps, or a bare scalar as it is."""
    if isinstance(raw, dict):
        for key, inner in raw.items():
            read = _SCALARS.get(key)
            if read is not None:
                return read(inner)
            if key in _NESTED_IS_MAP:
                items = inner.get("values") if isinstance(inner, dict) else inner
                items = items if isinstance(items, list) else []
                return read_nested(items, allowance, depth, FORM, is_map=_NESTED_IS_MAP[key])
        return None
    if isinstance(raw, int) and not -_INT64 <= raw < _INT64:
        return None
    return raw if isinstance(raw, str | int | float) else None


def _text_at(items: Sequence[Any], key: str) -> str:
    for item in items:
        if isinstance(item, dict) and item.get("key") == key:
            return _text(_value(item.get("value"), SpanAllowance(0, OtlpLimits()), 0))
    return ""


FORM = RecordForm(_pairs, _value, _text_at)


def _string(raw: object) -> AttributeValue:
    if isinstance(raw, str):
        return raw
    return None if raw is None or isinstance(raw, list | dict) else str(raw)


def _bool(raw: object) -> AttributeValue:
    if isinstance(raw, str):
        return {"true": True, "false": False}.get(raw.strip().lower())
    return bool(raw) if isinstance(raw, int | float) else None


def _int64(raw: object) -> AttributeValue:
    value = _integer(raw)
    return value if value is not None and -_INT64 <= value < _INT64 else None


# by both spellings of the key of an `AnyValue`; bytes are left out
_SCALARS: dict[str, Callable[[object], AttributeValue]] = {
    f"{kind}{suffix}": read
    for kind, read in (
        ("string", _string),
        ("int", _int64),
        ("double", _float),
        ("bool", _bool),
        ("bytes", lambda raw: None),
    )
    for suffix in ("Value", "_value")
}
_NESTED_IS_MAP = {
    **dict.fromkeys(("arrayValue", "array_value"), False),
    **dict.fromkeys(("kvlistValue", "kvlist_value"), True),
}


def decode_json(body: bytes, limits: OtlpLimits, *, logs: bool) -> DecodedRequest:
    """Decode a trace or log request; raise `UndecodableBody` if nothing can be read."""
    reader = RequestReader(limits, FORM)
    return reader.read(_records(body, reader, logs), JsonMessage, logs=logs)


def _records(
    body: bytes, reader: RequestReader, logs: bool
) -> Iterator[tuple[Any, RecordScope, int]]:
    """Yield every record with its scope; broken layers above the records are counted."""
    resource_keys, scope_keys, record_keys = _LOGS if logs else _SPANS
    size = len(body)
    try:
        content = parse_json_body(body)
    except UndecodableBody as error:
        printed = find_foreign_text(body)
        if printed is None:
            raise
        raise UndecodableBody("bad_json", f"the body is {printed}") from error
    del body
    resources = _field(content, *resource_keys) if isinstance(content, dict) else None
    if resources is None and (form := find_foreign_form(content)) is not None:
        raise UndecodableBody("bad_json", f"the body is {form}")
    if not isinstance(content, dict):
        raise UndecodableBody("bad_json", "the body is no JSON object")
    if resources is None and any(key in content for key in _NO_REQUEST):
        raise UndecodableBody("bad_json", f"the body has no {resource_keys[0]}")
    if not isinstance(resources, list | None):
        raise UndecodableBody("bad_json", f"{resource_keys[0]} is no list")
    for item in resources or ():
        if not isinstance(item, dict):
            reader.decoded.reject("unreadable")
            continue
        resource = item.get("resource")
        attributes = resource.get("attributes") if isinstance(resource, dict) else None
        read = reader.resource(_pair_list(attributes))
        for group in _list(item, *scope_keys):
            if not isinstance(group, dict):
                reader.decoded.reject("unreadable")
                continue
            scope = _field(group, "scope", "instrumentationLibrary")
            name = _text(scope.get("name")) if isinstance(scope, dict) else ""
            record_scope = RecordScope(read, name)
            records = _list(group, *record_keys)
            records.reverse()
            while records:  # each is taken off the list, so that its memory is freed once read
                yield records.pop(), record_scope, size
