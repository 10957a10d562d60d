"""The messages of the scores topic: scored traces and documents of parts, as JSON.

Both ends are ours: what does not fit the types of the wire is neither written nor read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from ragmeter.ingest.native import DecodeFailure
from ragmeter.kafka.score_records import ScoreRecord, decode_scores
from ragmeter.kafka.wire import READ_BYTES, BadRecord, EventTime, Name, read_wire
from ragmeter.parts.contract import Document, DocumentKind

# The prefix of the records of documents: no other kind begins with it.
_DOCUMENT_PREFIX = b'{"v":1,"part":'


@dataclass(slots=True)
class DocumentRecord:
    """A document that a part reads; `at` is its checked time in Unix seconds."""

    part: str
    document: Document
    at: float


@dataclass
class _DocumentWire:
    v: int
    part: Name
    at: EventTime
    document: Any


_DOCUMENT_WIRE = TypeAdapter(_DocumentWire)


def encode_document(part: str, raw: bytes, at: float) -> bytes:
    """Return the record of a document, given the JSON of a valid one as it came."""
    head = _DOCUMENT_PREFIX + json.dumps(part).encode() + b',"at":' + json.dumps(at).encode()
    return head + b',"document":' + raw + b"}"


def decode_scores_message(
    data: bytes,
    kinds: Mapping[str, DocumentKind] = MappingProxyType({}),
    limit: int = READ_BYTES,
) -> list[ScoreRecord] | DocumentRecord:
    """Decode any message of the topic; raises as `decode_scores`.

    Args:
        data: The message.
        kinds: The kinds of documents that parts read, by the name of the part.
        limit: Bytes of a message that is read.
    """
    if data.startswith(_DOCUMENT_PREFIX) and len(data) <= limit:
        return _read_document(read_wire(_DOCUMENT_WIRE, data, strict=False), kinds)
    return decode_scores(data, limit)


def _read_document(wire: _DocumentWire, kinds: Mapping[str, DocumentKind]) -> DocumentRecord:
    kind = kinds.get(wire.part)
    if kind is None:
        raise BadRecord.of(f"no part {wire.part!r} reads documents")
    decode = kind.decode_sent or kind.decode
    document = decode(to_json(wire.document))
    if isinstance(document, DecodeFailure):
        raise BadRecord(document)
    return DocumentRecord(wire.part, document, wire.at)
