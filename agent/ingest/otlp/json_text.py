"""The bytes of an OTLP/JSON body to plain objects, in bounded memory, whatever the bytes are."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

from agent.ingest.bounds import BOM
from agent.ingest.otlp.result import Undecodable

__all__ = ["is_json", "parse"]

# What the parsed objects of one body may take, by the estimate below: 20 MB of the shortest
# attributes that occur (70 bytes each) come to 190 MB, of RAG spans to 40 MB.
MAX_TREE = 256 * 2**20
OBJECT = 250  # bytes: a dict with one key that no other has
VALUE = 64  # bytes: a short string or float, and its place in the list or dict

# Strings (or what is left where one never ends), or a mark that a value begins at.
_MARK = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))++|([{\[,])', re.DOTALL)

# Half a surrogate pair, which no UTF-8 can hold: a JavaScript sender that cuts a text inside an
# emoji writes it.
_HIGH = rb"[89abAB][0-9a-fA-F]{2}"
_LOW = rb"[c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)
MAX_MENDED = 100_000  # of them in one body: a microsecond each, and one a text is what occurs
_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)


def is_json(body: bytes) -> bool:
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
    if VALUE * values + OBJECT * body.count(b"{") <= MAX_TREE:  # those in strings counted too
        return
    size = 0
    for mark in _MARK.finditer(body):
        if mark.lastindex:
            size += OBJECT if mark[1] == b"{" else VALUE
            if size > MAX_TREE:
                raise Undecodable("too_large", "too many JSON values in one body")


def parse(body: bytes) -> Any:
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
        return from_json(_LONE.sub(_mended, body, MAX_MENDED), cache_strings="keys")
    except ValueError as error:
        raise Undecodable("bad_json", f"the body is no JSON: {error}") from None
