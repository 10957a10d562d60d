"""The small parts of OTLP/JSON, read leniently: keys, ids, numbers, enums, attributes.

The rules are those of OTLP/JSON (hex ids, numbers for enums, int64 as text) and of plain protobuf
JSON (base64 ids, names for enums, keys in snake case), since senders mix them up.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable
from typing import Any

from agent.ingest.otlp.limits import Limits, Room, is_vector
from agent.ingest.otlp.result import Rejected
from agent.ingest.spans import Value

__all__ = [
    "attributes",
    "count",
    "enum",
    "field",
    "identifier",
    "listed",
    "nanoseconds",
    "text",
    "value",
]

MAX_DIGITS = 64  # characters of a number written as text; a nanosecond time has 19
INT64 = 2**63
UINT64 = 2**64


def field(item: dict[str, Any], *names: str) -> Any:
    """What stands under the first of `names` that is there and not null."""
    for name in names:
        found = item.get(name)
        if found is not None:
            return found
    return None


def listed(item: dict[str, Any], *names: str) -> list[Any]:
    found = field(item, *names)
    return found if isinstance(found, list) else []


def text(raw: object, most: int) -> str:
    return raw[:most] if isinstance(raw, str) else ""


def identifier(raw: object, size: int, reason: str) -> str:
    """An id of `size` bytes as lower-case hex, "" for none or zeros. Raises `Rejected(reason)`."""
    if raw is None or raw == "":
        return ""
    if not isinstance(raw, str):
        raise Rejected(reason)
    try:
        if len(raw) == 2 * size:
            read = bytes.fromhex(raw)
        else:  # base64, in either alphabet, padded or not
            letters = raw.rstrip("=")
            if len(raw) > 2 * size or len(letters) != -(-size * 4 // 3):
                raise Rejected(reason)
            letters = letters.replace("-", "+").replace("_", "/")
            read = binascii.a2b_base64(letters + "=" * (-len(letters) % 4), strict_mode=True)
    except ValueError:
        raise Rejected(reason) from None
    if len(read) != size:
        raise Rejected(reason)
    return read.hex() if any(read) else ""


def _integer(raw: object) -> int | None:
    if isinstance(raw, str):
        if len(raw) > MAX_DIGITS:
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
    if isinstance(raw, str) and len(raw) > MAX_DIGITS:
        return None
    try:
        return float(raw) if isinstance(raw, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def nanoseconds(raw: object) -> int:
    """A time, 0 where there is none or it is none."""
    read = _integer(raw)
    return read if read is not None and 0 <= read < UINT64 else 0


def count(raw: object) -> int:
    read = _integer(raw)
    return min(max(read or 0, 0), 2**32 - 1)


def enum(raw: object, prefix: str, names: tuple[str, ...]) -> int:
    """A number below `len(names)`; a name with or without its prefix; 0 for anything else."""
    if isinstance(raw, str):
        name = raw.strip().upper().removeprefix(prefix)
        if name in names:
            return names.index(name)
    read = _integer(raw)
    return read if read is not None and 0 <= read < len(names) else 0


def _string(raw: object, room: Room, depth: int) -> Value:
    if isinstance(raw, str):
        return raw
    return None if raw is None or isinstance(raw, list | dict) else str(raw)


def _bool(raw: object, room: Room, depth: int) -> Value:
    if isinstance(raw, str):
        return {"true": True, "false": False}.get(raw.strip().lower())
    return bool(raw) if isinstance(raw, int | float) else None


def _int64(raw: object, room: Room, depth: int) -> Value:
    read = _integer(raw)
    return read if read is not None and -INT64 <= read < INT64 else None


def _double(raw: object, room: Room, depth: int) -> Value:
    return _float(raw)


def _bytes(raw: object, room: Room, depth: int) -> Value:
    return None


def _values(raw: object, room: Room, depth: int) -> list[Any] | None:
    """The elements of a list or map, None where it is too deep."""
    if isinstance(raw, dict):
        raw = raw.get("values")
    if depth <= 0:
        room.dropped += 1
        return None
    return raw if isinstance(raw, list) else []


def _array(raw: object, room: Room, depth: int) -> Value:
    held = _values(raw, room, depth)
    if held is None or is_vector(len(held), value(held[0], Room(0), 0) if held else None):
        return None
    taken = room.take(len(held), len(held))
    return [value(inner, room, depth - 1) for inner in held[:taken]]


def _map(raw: object, room: Room, depth: int) -> Value:
    held = _values(raw, room, depth)
    if held is None:
        return None
    return _pairs(held[: room.take(len(held), len(held))], room, depth - 1)


_READERS: dict[str, Callable[[object, Room, int], Value]] = {
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


def value(raw: object, room: Room, depth: int) -> Value:
    """An `AnyValue`; a bare scalar is taken as it is."""
    if isinstance(raw, dict):
        for key, inner in raw.items():
            read = _READERS.get(key)
            if read is not None:
                return read(inner, room, depth)
        return None
    if isinstance(raw, int) and not -INT64 <= raw < INT64:
        return None
    return raw if isinstance(raw, str | int | float) else None


def _pairs(items: list[Any], room: Room, depth: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for item in items:
        try:
            key, inner = item["key"], item.get("value")
        except (TypeError, KeyError, AttributeError):
            room.dropped += 1
            continue
        if isinstance(key, str):
            found[key] = value(inner, room, depth)
        else:
            room.dropped += 1
    return found


def attributes(raw: object, room: Room, limits: Limits) -> dict[str, Value]:
    """A list of key and value; of a key that occurs twice the last value."""
    if not isinstance(raw, list):
        room.dropped += raw is not None
        return {}
    taken = room.take(len(raw), limits.attributes)
    return _pairs(raw if taken == len(raw) else raw[:taken], room, limits.depth)
