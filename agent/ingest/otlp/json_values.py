"""Parse OTLP/JSON text in bounded memory and read its ids, numbers, enums and attribute values leniently.

The small parts of OTLP/JSON, read leniently: keys, ids, numbers, enums, attributes.

The rules are those of OTLP/JSON (hex ids, numbers for enums, int64 as text) and of plain protobuf
JSON (base64 ids, names for enums, keys in snake case), since senders mix them up.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

from ragmeter.ingest.native import BOM
from ragmeter.ingest.otlp.limits import (
    OtlpLimits,
    RejectedRecord,
    SpanAllowance,
    UndecodableBody,
    is_vector,
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
_LONE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)
_MAX_MENDED = 100_000  # of them in one body: a microsecond each, and one a text is what occurs
_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)


def is_json_body(body: bytes) -> bool:
    """Whether a body of unknown form is JSON, by how it begins. Protobuf begins with the tag of
    its only field, 0x0a: a line feed, after which any length may look like JSON."""
    return body[:1] != b"\n" and body[:64].removeprefix(BOM).lstrip(b" \t\r\n")[:1] == b"{"


def _mended(escape: re.Match[bytes]) -> bytes:
    body, before = escape.string, escape.start()
    while before and body[before - 1] == ord("\\"):
        before -= 1
    # after an odd number of others, this backslash is itself escaped and begins no escape
    return escape[0] if (escape.start() - before) % 2 else rb"\ufffd"


def _check_tree(body: bytes) -> None:
    values = body.count(b",") + body.count(b"[")
    if _VALUE * values + _OBJECT * body.count(b"{") <= MAX_TREE:  # those in strings counted too
        return
    size = 0
    for mark in _MARK.finditer(body):
        if mark.lastindex:
            size += _OBJECT if mark[1] == b"{" else _VALUE
            if size > MAX_TREE:
                raise UndecodableBody("too_large", "too many JSON values in one body")


def parse_json_body(body: bytes) -> Any:
    """The value that the body holds. Of keys that occur twice the last one counts.

    What illegal JSON exists is mended once it has failed: bytes that are no UTF-8, halves of
    surrogate pairs, control characters in strings. Raises `Undecodable`.
    """
    _check_tree(body)
    body = body.removeprefix(BOM)
    try:
        return from_json(body, cache_strings="keys")
    except ValueError:
        pass
    body = body.decode(errors="replace").encode().translate(_CONTROLS)
    try:
        return from_json(_LONE.sub(_mended, body, _MAX_MENDED), cache_strings="keys")
    except ValueError as error:
        raise UndecodableBody("bad_json", f"the body is no JSON: {error}") from None


_MAX_DIGITS = 64  # characters of a number written as text; a nanosecond time has 19
_INT64 = 2**63
_UINT64 = 2**64


def get_field(item: dict[str, Any], *names: str) -> Any:
    """What stands under the first of `names` that is there and not null."""
    for name in names:
        found = item.get(name)
        if found is not None:
            return found
    return None


def get_list(item: dict[str, Any], *names: str) -> list[Any]:
    found = get_field(item, *names)
    return found if isinstance(found, list) else []


def get_text(raw: object, most: int) -> str:
    return raw[:most] if isinstance(raw, str) else ""


def parse_id(raw: object, size: int, reason: str) -> str:
    """An id of `size` bytes as lower-case hex, "" for none or zeros. Raises `Rejected(reason)`."""
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
    """Also "NaN", "Infinity" and "-Infinity", as OTLP/JSON writes them."""
    if isinstance(raw, str) and len(raw) > _MAX_DIGITS:
        return None
    try:
        return float(raw) if isinstance(raw, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def parse_nanoseconds(raw: object) -> int:
    """A time, 0 where there is none or it is none."""
    read = _integer(raw)
    return read if read is not None and 0 <= read < _UINT64 else 0


def parse_count(raw: object) -> int:
    read = _integer(raw)
    return min(max(read or 0, 0), 2**32 - 1)


def parse_enum(raw: object, prefix: str, names: tuple[str, ...]) -> int:
    """A number below `len(names)`; a name with or without its prefix; 0 for anything else."""
    if isinstance(raw, str):
        name = raw.strip().upper().removeprefix(prefix)
        if name in names:
            return names.index(name)
    read = _integer(raw)
    return read if read is not None and 0 <= read < len(names) else 0


def _string(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    if isinstance(raw, str):
        return raw
    return None if raw is None or isinstance(raw, list | dict) else str(raw)


def _bool(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    if isinstance(raw, str):
        return {"true": True, "false": False}.get(raw.strip().lower())
    return bool(raw) if isinstance(raw, int | float) else None


def _int64(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    read = _integer(raw)
    return read if read is not None and -_INT64 <= read < _INT64 else None


def _double(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    return _float(raw)


def _bytes(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    return None


def _values(raw: object, room: SpanAllowance, depth: int) -> list[Any] | None:
    """The elements of a list or map, None where it is too deep."""
    if isinstance(raw, dict):
        raw = raw.get("values")
    if depth <= 0:
        room.dropped += 1
        return None
    return raw if isinstance(raw, list) else []


def _array(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    held = _values(raw, room, depth)
    if held is None or is_vector(
        len(held), parse_value(held[0], SpanAllowance(0), 0) if held else None
    ):
        return None
    taken = room.take(len(held), len(held))
    return [parse_value(inner, room, depth - 1) for inner in held[:taken]]


def _map(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    held = _values(raw, room, depth)
    if held is None:
        return None
    return _pairs(held[: room.take(len(held), len(held))], room, depth - 1)


_READERS: dict[str, Callable[[object, SpanAllowance, int], AttributeValue]] = {
    "stringValue": _string,
    "intValue": _int64,
    "doubleValue": _double,
    "boolValue": _bool,
    "arrayValue": _array,
    "kvlistValue": _map,
    "bytesValue": _bytes,
    "string_value": _string,
    "int_value": _int64,
    "double_value": _double,
    "bool_value": _bool,
    "array_value": _array,
    "kvlist_value": _map,
    "bytes_value": _bytes,
}


def parse_value(raw: object, room: SpanAllowance, depth: int) -> AttributeValue:
    """An `AnyValue`; a bare scalar is taken as it is."""
    if isinstance(raw, dict):
        for key, inner in raw.items():
            read = _READERS.get(key)
            if read is not None:
                return read(inner, room, depth)
        return None
    if isinstance(raw, int) and not -_INT64 <= raw < _INT64:
        return None
    return raw if isinstance(raw, str | int | float) else None


def _pairs(items: list[Any], room: SpanAllowance, depth: int) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for item in items:
        try:
            key, inner = item["key"], item.get("value")
        except (TypeError, KeyError, AttributeError):
            room.dropped += 1
            continue
        if isinstance(key, str):
            found[key] = parse_value(inner, room, depth)
        else:
            room.dropped += 1
    return found


def parse_attributes(
    raw: object, room: SpanAllowance, limits: OtlpLimits
) -> dict[str, AttributeValue]:
    """A list of key and value; of a key that occurs twice the last value."""
    if not isinstance(raw, list):
        room.dropped += raw is not None
        return {}
    taken = room.take(len(raw), limits.attributes)
    return _pairs(raw if taken == len(raw) else raw[:taken], room, limits.depth)
