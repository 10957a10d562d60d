"""Decode OTLP/JSON export requests of spans and log records, in bounded memory.

The rules are those of OTLP/JSON (hex ids, numbers for enums, int64 as text) and of plain protobuf
JSON (base64 ids, names for enums, keys in snake case), since senders mix them up. Tempo's `batches`
and `instrumentationLibrarySpans` are layers of a request under older names.
"""

from __future__ import annotations

import binascii
import contextlib
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from pydantic_core import from_json

from ragmeter.ingest.native import BOM
from ragmeter.ingest.otlp.limits import (
    MAX_NAME,
    MAX_STATUS,
    MAX_TRACE_STATE,
    DecodedRequest,
    OtlpLimits,
    RecordScope,
    RejectedRecord,
    RequestDecoder,
    SpanAllowance,
    UndecodableBody,
    is_vector,
    trim_attributes,
)
from ragmeter.ingest.spans import (
    AttributeValue,
    LogEvent,
    Span,
    SpanEvent,
    may_carry_content,
    read_log_event,
)

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
    body, before = escape.string, escape.start()
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


def get_field(item: dict[str, Any], *names: str) -> Any:
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


def get_list(item: dict[str, Any], *names: str) -> list[Any]:
    """Return the list under the first of `names` that is present, empty for any other value."""
    value = get_field(item, *names)
    return value if isinstance(value, list) else []


def get_text(raw: object, most: int) -> str:
    """Return the first `most` characters of text, "" for any other value."""
    return raw[:most] if isinstance(raw, str) else ""


def parse_id(raw: object, size: int, reason: str) -> str:
    """Return an id of `size` bytes as lower-case hex, "" for none or zeros.

    Raises:
        RejectedRecord: It is no id; the text is `reason`.
    """
    if raw is None or raw == "":
        return ""
    if not isinstance(raw, str):
        raise RejectedRecord(reason)
    try:
        if len(raw) == 2 * size:
            read = bytes.fromhex(raw)
        else:  # base64, in either alphabet, padded or not
            letters = raw.rstrip("=")
            if len(raw) > 2 * size or len(letters) != -(-size * 4 // 3):
                raise RejectedRecord(reason)
            letters = letters.replace("-", "+").replace("_", "/")
            read = binascii.a2b_base64(letters + "=" * (-len(letters) % 4), strict_mode=True)
    except ValueError:
        raise RejectedRecord(reason) from None
    if len(read) != size:
        raise RejectedRecord(reason)
    return read.hex() if any(read) else ""


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


def parse_nanoseconds(raw: object) -> int:
    """Return a Unix time in nanoseconds, 0 for any value that is no time."""
    value = _integer(raw)
    return value if value is not None and 0 <= value < _UINT64 else 0


def parse_count(raw: object) -> int:
    """Return a count within 32 bits, 0 for any value that is no number."""
    value = _integer(raw)
    return min(max(value or 0, 0), 2**32 - 1)


def parse_enum(raw: object, prefix: str, names: tuple[str, ...]) -> int:
    """Return the number of an enum value, given as number or name; 0 for an unknown one."""
    if isinstance(raw, str):
        name = raw.strip().upper().removeprefix(prefix)
        if name in names:
            return names.index(name)
    value = _integer(raw)
    return value if value is not None and 0 <= value < len(names) else 0


def parse_attributes(raw: object, allowance: SpanAllowance) -> dict[str, AttributeValue]:
    """Read a list of key and value; if a key occurs twice, the last value counts."""
    if not isinstance(raw, list):
        allowance.dropped += raw is not None
        return {}
    taken = allowance.take(len(raw), allowance.limits.attributes)
    return _pairs(raw if taken == len(raw) else raw[:taken], allowance, allowance.limits.depth)


def parse_value(raw: object, allowance: SpanAllowance, depth: int) -> AttributeValue:
    """Read an `AnyValue`, with `depth` levels of lists and maps, or a bare scalar as it is."""
    if isinstance(raw, dict):
        for key, inner in raw.items():
            read = _SCALARS.get(key)
            if read is not None:
                return read(inner)
            if key in _NESTED_IS_MAP:
                return _nested(inner, allowance, depth, _NESTED_IS_MAP[key])
        return None
    if isinstance(raw, int) and not -_INT64 <= raw < _INT64:
        return None
    return raw if isinstance(raw, str | int | float) else None


def _pairs(items: list[Any], allowance: SpanAllowance, depth: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    for item in items:
        try:
            key, inner = item["key"], item.get("value")
        except (TypeError, KeyError, AttributeError):
            allowance.dropped += 1
            continue
        if isinstance(key, str):
            attributes[key] = parse_value(inner, allowance, depth)
        else:
            allowance.dropped += 1
    return attributes


def _nested(raw: object, allowance: SpanAllowance, depth: int, is_map: bool) -> AttributeValue:
    """Read a list or map; None if it is too deep or a vector."""
    items = raw.get("values") if isinstance(raw, dict) else raw
    if depth <= 0:
        allowance.dropped += 1
        return None
    if not isinstance(items, list):
        items = []
    if items and not is_map:
        none_left = SpanAllowance(0, allowance.limits)
        if is_vector(len(items), parse_value(items[0], none_left, 0)):
            return None
    items = items[: allowance.take(len(items), len(items))]
    if is_map:
        return _pairs(items, allowance, depth - 1)
    return [parse_value(item, allowance, depth - 1) for item in items]


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
    request = RequestDecoder(limits)
    return request.decode(_records(body, request, logs), _log if logs else _span)


def _records(
    body: bytes, request: RequestDecoder, logs: bool
) -> Iterator[tuple[Any, RecordScope, int]]:
    """Yield every record with its scope; broken layers above the records are counted."""
    resource_keys, scope_keys, record_keys = _LOGS if logs else _SPANS
    size = len(body)
    content = parse_json_body(body)
    del body
    if not isinstance(content, dict):
        raise UndecodableBody("bad_json", "the body is no JSON object")
    resources = get_field(content, *resource_keys)
    if not isinstance(resources, list | None):
        raise UndecodableBody("bad_json", f"{resource_keys[0]} is no list")
    for item in resources or ():
        if not isinstance(item, dict):
            request.decoded.reject("unreadable")
            continue
        resource = _resource(item, request)
        for group in get_list(item, *scope_keys):
            if not isinstance(group, dict):
                request.decoded.reject("unreadable")
                continue
            raw_scope = get_field(group, "scope", "instrumentationLibrary")
            scope = RecordScope(resource)
            if isinstance(raw_scope, dict):
                scope.name = get_text(raw_scope.get("name"), MAX_NAME)
                scope.version = get_text(raw_scope.get("version"), MAX_NAME)
            records = get_list(group, *record_keys)
            records.reverse()
            while records:  # each is taken off the list, so that its memory is freed once read
                yield records.pop(), scope, size


def _resource(item: dict[str, Any], request: RequestDecoder) -> dict[str, AttributeValue]:
    resource = item.get("resource")
    allowance = request.allow()
    raw = resource.get("attributes") if isinstance(resource, dict) else None
    attributes = parse_attributes(raw, allowance)
    trim_attributes((attributes,), request.limits.resource_text)
    request.settle(allowance)
    return attributes


def _span(item: Any, scope: RecordScope, allowance: SpanAllowance) -> Span:
    if not isinstance(item, dict):
        raise RejectedRecord("unreadable")
    status = item.get("status")
    if not isinstance(status, dict):
        status = {}
    parent = get_field(item, "parentSpanId")
    attributes = parse_attributes(item.get("attributes"), allowance)
    events = _events(get_list(item, "events"), allowance)
    links = _links(get_list(item, "links"), allowance)
    allowance.dropped += parse_count(get_field(item, "droppedAttributesCount"))
    allowance.dropped += parse_count(get_field(item, "droppedEventsCount"))
    return Span(
        trace_id=_trace_id(item),
        span_id=_span_id(item),
        parent_id=parse_id(parent, 8, "bad_parent_id"),
        name=get_text(item.get("name"), MAX_NAME),
        kind=parse_enum(item.get("kind"), "SPAN_KIND_", _KINDS),
        start=parse_nanoseconds(get_field(item, "startTimeUnixNano")),
        end=parse_nanoseconds(get_field(item, "endTimeUnixNano")),
        status=parse_enum(status.get("code"), "STATUS_CODE_", _STATUSES),
        status_message=get_text(status.get("message"), MAX_STATUS),
        attributes=attributes,
        events=events,
        links=links,
        trace_state=get_text(get_field(item, "traceState"), MAX_TRACE_STATE),
        scope=scope.name,
        scope_version=scope.version,
        resource=scope.resource,
        dropped=allowance.dropped,
    )


def _required_id(item: dict[str, Any], name: str, size: int, reason: str) -> str:
    identity = parse_id(get_field(item, name), size, reason)
    if not identity:
        raise RejectedRecord(reason)
    return identity


def _trace_id(item: dict[str, Any]) -> str:
    return _required_id(item, "traceId", 16, "bad_trace_id")


def _span_id(item: dict[str, Any]) -> str:
    return _required_id(item, "spanId", 8, "bad_span_id")


def _events(raw: list[Any], allowance: SpanAllowance) -> list[SpanEvent]:
    events = []
    for event in raw[: allowance.take(len(raw), allowance.limits.events)]:
        if not isinstance(event, dict):
            allowance.dropped += 1
            continue
        allowance.dropped += parse_count(get_field(event, "droppedAttributesCount"))
        time = parse_nanoseconds(get_field(event, "timeUnixNano"))
        attributes = parse_attributes(event.get("attributes"), allowance)
        events.append(SpanEvent(get_text(event.get("name"), MAX_NAME), time, attributes))
    return events


def _links(raw: list[Any], allowance: SpanAllowance) -> list[tuple[str, str]]:
    links = []
    for link in raw[: allowance.take(len(raw), allowance.limits.links)]:
        if isinstance(link, dict):
            with contextlib.suppress(RejectedRecord):
                links.append((_trace_id(link), _span_id(link)))
    return links


def _log(item: Any, scope: RecordScope, allowance: SpanAllowance) -> LogEvent | None:
    if not isinstance(item, dict):
        raise RejectedRecord("unreadable")
    name = get_text(get_field(item, "eventName"), MAX_NAME)
    if not name:
        for pair in get_list(item, "attributes"):
            if isinstance(pair, dict) and pair.get("key") == "event.name":
                none_left = SpanAllowance(0, allowance.limits)
                name = get_text(parse_value(pair.get("value"), none_left, 0), MAX_NAME)
    if not may_carry_content(name):
        return None
    if not get_field(item, "traceId") or not get_field(item, "spanId"):
        return None
    time = parse_nanoseconds(get_field(item, "timeUnixNano"))
    observed = parse_nanoseconds(get_field(item, "observedTimeUnixNano"))
    return read_log_event(
        _trace_id(item),
        _span_id(item),
        name,
        time or observed,
        parse_attributes(item.get("attributes"), allowance),
        parse_value(item.get("body"), allowance, allowance.limits.depth),
    )
