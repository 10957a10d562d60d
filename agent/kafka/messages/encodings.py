"""In which form a message of the traces is: a trace of ours, or an OTLP request.

By its header `encoding` where it has one, else by `kafka.traces_encoding`, else by its content.
Content tells them apart: an OTLP/JSON request begins with its only key, which no trace of ours has;
a protobuf request begins with the tag of its only field, a line feed, and is no JSON. What is
neither is taken for a trace of ours, and refused as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from agent.ingest.bounds import BOM
from agent.ingest.native import is_object
from agent.settings.kafka import TracesEncoding

__all__ = ["HEADER", "Encoding", "detect", "encoding_of", "is_logs"]

HEADER = "encoding"

# As lenient as `agent.ingest.otlp.json_form` is with names.
_FIRST = re.compile(rb'\s*\{\s*"(resource_?[sS]pans|resource_?[lL]ogs|batches)"\s*:')
_HEAD = 256  # bytes in which the first key is looked for


class Encoding(StrEnum):
    NATIVE = "native"
    PROTO = "otlp_proto"
    JSON = "otlp_json"


def encoding_of(
    body: bytes,
    headers: Iterable[tuple[str, bytes]] | Mapping[str, bytes] | None,
    wanted: TracesEncoding,
) -> Encoding:
    """`headers` are those of the message."""
    said = dict(headers or ()).get(HEADER, b"").decode("ascii", "replace")
    if said in tuple(Encoding):
        return Encoding(said)
    return detect(body) if wanted == "auto" else Encoding(wanted)


def detect(body: bytes) -> Encoding:
    if _first(body) is not None:
        return Encoding.JSON
    # a first resource of 123 bytes makes a protobuf request begin like an object after a line feed
    if body[:1] == b"\n" and not (body[:_HEAD].lstrip()[:1] == b"{" and is_object(body)):
        return Encoding.PROTO
    return Encoding.NATIVE


def is_logs(body: bytes) -> bool:
    """Whether an OTLP/JSON request is one of log records."""
    return b"ogs" in (_first(body) or b"")


def _first(body: bytes) -> bytes | None:
    match = _FIRST.match(body[: len(BOM) + _HEAD].removeprefix(BOM))
    return match[1] if match else None
