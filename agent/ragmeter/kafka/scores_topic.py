"""The messages of the scores topic: scored traces, feedback and documents of parts, as JSON.

Both ends are ours: what does not fit the types of the wire is neither written nor read. Feedback
carries hashes in place of the ids of trace and passages, and no text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from ragmeter.aggregate.feedback_records import FeedbackLabels
from ragmeter.ingest.native import DecodeFailure
from ragmeter.kafka.score_records import ScoreRecord, decode_scores, encode_json
from ragmeter.kafka.wire import READ_BYTES, BadRecord, EventTime, Name, read_wire
from ragmeter.parts.contract import Document, DocumentKind
from ragmeter.store.pending import NewFeedback
from ragmeter.trace import Id

# Prefixes that tell the kinds of records apart: no other kind begins with them.
_FEEDBACK_PREFIX = b'{"v":1,"labelled":'
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


@dataclass
class _FeedbackWire:
    v: int
    labelled: EventTime
    trace: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    service: Id
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    word: str


_DOCUMENT_WIRE = TypeAdapter(_DocumentWire)
_FEEDBACK_WIRE = TypeAdapter(_FeedbackWire)


def encode_document(part: str, raw: bytes, at: float) -> bytes:
    """Return the record of a document, given the JSON of a valid one as it came."""
    head = _DOCUMENT_PREFIX + json.dumps(part).encode() + b',"at":' + json.dumps(at).encode()
    return head + b',"document":' + raw + b"}"


def encode_feedback(row: NewFeedback) -> bytes:
    """Return the JSON of feedback; `since` is the time of the label.

    That time counts where no event time is known.
    """
    tree = {"trace": row.trace.hex(), "service": row.service, "scorer": row.scorer}
    rest = encode_json({**tree, "word": row.body}).encode()
    return _FEEDBACK_PREFIX + json.dumps(row.since).encode() + b"," + rest[1:]


def decode_scores_message(
    data: bytes,
    kinds: Mapping[str, DocumentKind] = MappingProxyType({}),
    limit: int = READ_BYTES,
) -> list[ScoreRecord] | DocumentRecord | NewFeedback:
    """Decode any message of the topic; raises as `decode_scores`.

    Args:
        data: The message.
        kinds: The kinds of documents that parts read, by the name of the part.
        limit: Bytes of a message that is read.
    """
    if data.startswith(_FEEDBACK_PREFIX) and len(data) <= limit:
        feedback = read_wire(_FEEDBACK_WIRE, data, strict=False)
        try:
            FeedbackLabels.load(feedback.word)  # checked here, and not where a lock is held
        except (ValueError, TypeError):
            raise BadRecord.of("the labels of the feedback are invalid") from None
        fields = feedback.service, feedback.scorer, feedback.labelled, feedback.word
        return NewFeedback(bytes.fromhex(feedback.trace), *fields)
    if data.startswith(_DOCUMENT_PREFIX) and len(data) <= limit:
        return _read_document(read_wire(_DOCUMENT_WIRE, data, strict=False), kinds)
    return decode_scores(data, limit)


def _read_document(wire: _DocumentWire, kinds: Mapping[str, DocumentKind]) -> DocumentRecord:
    kind = kinds.get(wire.part)
    if kind is None:
        raise BadRecord.of(f"no part {wire.part!r} reads documents")
    document = kind.decode(to_json(wire.document))
    if isinstance(document, DecodeFailure):
        raise BadRecord(document)
    return DocumentRecord(wire.part, document, wire.at)
