"""What a body may hold, told from its bytes before anything is parsed.

A byte of JSON may become a hundred bytes of objects (`[{},{},...`): the size of a body alone does
not bound what reading it costs.
"""

from __future__ import annotations

import re

__all__ = ["BOM", "MAX_ITEMS", "MAX_TRACE_VALUES", "TooMuch", "check_body", "utf16", "values_over"]

MAX_ITEMS = 100_000  # of one body; 20 MB of ordinary traces are 4,000
# An empty object or a short key costs about 100 bytes once parsed, so these are about 100 MB a
# body and 20 MB a trace; 20 MB of ordinary traces hold 400,000 values. The first also bounds the
# work: 5 us for a value that is refused.
MAX_VALUES = 1_000_000
MAX_TRACE_VALUES = 200_000
BOM = b"\xef\xbb\xbf"

# A JSON string, or what is left where it never ends: it matches at every quote, so it is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class TooMuch(Exception):
    """A body with more items or values than one may have; the text says which."""


def utf16(head: bytes) -> bool:
    """Whether bytes begin like UTF-16 (or 32): with its mark, or JSON with every other byte 0."""
    return head[:2] in (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def values_over(text: bytes, most: int) -> bool:
    """Whether JSON holds more than about `most` values: commas and brackets outside of strings."""
    if _separators(text) <= most:  # the strings' own ones counted too: nearly always the end of it
        return False
    # cutting strings out costs 90 bytes each; most quotes in texts are escaped and no string's end
    if text.count(b'"') - text.count(b'\\"') > 2 * most:
        return True
    return _separators(_STRING.sub(b"", text)) > most


def check_body(body: bytes) -> None:
    """Raises `TooMuch` for a body that must not be split into lines or parsed at once."""
    lines = body.count(b"\n") + body.count(b"\r")
    if lines > MAX_VALUES:
        raise TooMuch(f"more than {MAX_VALUES} lines in one body; send smaller ones")
    if values_over(body, MAX_VALUES):
        raise TooMuch(f"more than {MAX_VALUES} JSON values in one body; send smaller ones")
