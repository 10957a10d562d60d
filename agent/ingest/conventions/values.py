"""What a value is: JSON opened, numbers that are text, marks of what is hidden or cut.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = [
    "cut_json",
    "cut_off",
    "hidden",
    "is_embedding",
    "looks_like_json",
    "number",
    "open_json",
    "text_of",
    "truthy",
    "whole",
]

MAX_VALUES = 200_000  # of one JSON text: about 20 MB of objects, as of a native trace

# what the instrumentors write in the place of content that is switched off
HIDDEN = frozenset(
    {
        "__redacted__",
        "[redacted]",
        "<redacted>",
        "redacted",
        "***",
        "<hidden>",
        "[hidden]",
        "[filtered]",
        "<masked due to enable_langfuse being set to false>",
    }
)


def truthy(value: object) -> bool:
    """A boolean that may be text or a number."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def number(value: object) -> float | None:
    """A finite number that may be text."""
    if value is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        out = float(value)
    except (ValueError, OverflowError):
        return None
    return out if math.isfinite(out) else None


def whole(value: object) -> int | None:
    """A count that may be text: not negative, and small enough to be exact in a float."""
    out = number(value)
    return int(out) if out is not None and 0 <= out <= 2**53 else None


def text_of(value: object) -> str | None:
    """A scalar as text, None where there is none: "" and blanks are no text."""
    if isinstance(value, str):  # nearly always
        return value if value and not value.isspace() else None
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return str(value)
    except ValueError:  # an integer of thousands of digits
        return None


def hidden(value: object) -> bool:
    """Whether text stands for content that the sender hides."""
    if not isinstance(value, str) or len(value) >= 64:
        return False
    return value.strip().lower() in HIDDEN


def cut_off(text: str) -> bool:
    """Whether text shows the mark of a tracer that cuts: 100 characters and "..."."""
    return 100 <= len(text) <= 104 and text.endswith(("...", "…"))


def looks_like_json(text: str) -> bool:
    """Whether text begins like a JSON object or list, whole or not: `[1] says` does not."""
    return _JSON_START.match(text) is not None


_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:[\[{"]|\]\s*$|-?\d[\d.eE+-]*\s*,))')


def cut_json(value: object) -> bool:
    """Whether text begins like JSON and is none: a limit has cut it, or it is far too large."""
    return isinstance(value, str) and looks_like_json(value) and isinstance(open_json(value), str)


def _not_a_number(_: str) -> None:
    return None


_DECODER = json.JSONDecoder(parse_constant=_not_a_number)
_OPENING = frozenset(("{", "[", '"'))


def open_json(value: Any, *, times: int = 3) -> Any:
    """What a JSON text holds, opened again where it holds JSON text (three times at most).

    Text that is no JSON object, list or string comes back as it is, so does what is too large or
    too deep. A quoted string becomes its text. NaN and infinities become None.
    """
    for _ in range(times):
        if not isinstance(value, str):
            return value
        head = value[:1]
        if head not in _OPENING:  # nearly all texts
            head = value[:64].lstrip()[:1] if head.isspace() else ""
        if head not in _OPENING or (len(value) > MAX_VALUES and _values(value) > MAX_VALUES):
            return value
        if head == '"' and not value.rstrip().endswith('"'):
            return value
        try:
            value = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def _values(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def is_embedding(value: object) -> bool:
    """A vector, also as text: such is never a passage and never an answer."""
    if isinstance(value, str):
        head = value[:200].lstrip()
        return _VECTOR.match(head) is not None
    if isinstance(value, list) and len(value) >= 3:
        first = value[0]
        if isinstance(first, list):
            return is_embedding(first)
        return all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value[:8])
    return False


# "[0.1, -0.2, 0.3" and the repr of an OpenAI embedding; "[1, 2] say so" is text
_VECTOR = re.compile(
    r"(?:\[+\s*-?\d+\.\d+(?:e-?\d+)?\s*,\s*-?\d+\.\d+(?:e-?\d+)?\s*,|.{0,40}\bembedding=\[)",
    re.IGNORECASE,
)
