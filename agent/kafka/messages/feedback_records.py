"""Feedback on its way to the partition of its service, in the topic of the scores.

What was sent is read once, in stage 1: here it is what `agent.feedback.frames` makes of it, with
hashes in place of the ids of trace and passages, and no text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from agent.feedback.frames import Word
from agent.kafka.messages.bad_record import BadRecord
from agent.kafka.messages.source import Source
from agent.store.feedback import NewRow
from agent.trace import MAX_ID

__all__ = ["FEEDBACK", "FeedbackRecord", "decode_feedback", "encode_feedback"]

VERSION = 1
FEEDBACK = b'{"v":1,"labelled":'
"""What the record begins with, and no other does."""


@dataclass(slots=True)
class FeedbackRecord:
    """`row.since` is the time of the label, for where no event time is known; `source` is where
    the feedback was read."""

    row: NewRow
    source: Source


_Offset = Annotated[int, Field(ge=0)]


@dataclass
class _Wire:
    v: int
    labelled: Annotated[float, Field(ge=0, lt=7.3e9)]  # to the year 2201
    at: tuple[_Offset, _Offset, _Offset]
    trace: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    service: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    word: str


_WIRE = TypeAdapter(_Wire)


def encode_feedback(record: FeedbackRecord) -> bytes:
    row = record.row
    fields = {
        "at": record.source,
        "trace": row.trace.hex(),
        "service": row.service,
        "scorer": row.scorer,
        "word": row.body,
    }
    rest = json.dumps(fields, separators=(",", ":")).encode()
    return FEEDBACK + json.dumps(row.since).encode() + b"," + rest[1:]


def decode_feedback(data: bytes) -> FeedbackRecord:
    """Raises `BadRecord`."""
    try:
        wire = _WIRE.validate_json(data)
        Word.load(wire.word)  # here, and not where a lock is held
    except ValidationError as error:
        why = f"{error.error_count()} values of feedback are wrong"
        raise BadRecord("invalid_record", why) from None
    except (ValueError, TypeError):
        raise BadRecord("invalid_record", "what the feedback says is none") from None
    trace = bytes.fromhex(wire.trace)
    row = NewRow(trace, wire.service, wire.scorer, wire.labelled, wire.word)
    return FeedbackRecord(row, Source(*wire.at))
