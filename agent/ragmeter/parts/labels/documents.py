"""The labels of one feedback as the part reads them: no text, and no id of a trace or passage.

People and tickets send `ragmeter.core.feedback`. What is sent on over Kafka and what waits for its
trace is this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from ragmeter.core.feedback import MAX_PASSAGES, SCHEMA, Feedback
from ragmeter.ingest.feedback_files import (
    INVALID,
    MAX_BYTES,
    decode_feedback,
    decode_feedback_body,
    read_feedback,
)
from ragmeter.ingest.native import DecodeFailure
from ragmeter.metrics.merged_labels import (
    GivenLabels,
    LabelProbability,
    TimedLabels,
    effective_labels,
    read_labels,
    trace_key,
)
from ragmeter.parts.contract import DocumentKind
from ragmeter.trace import Id, Timestamp

# Each feedback ends in exactly one of these.
OUTCOMES = {
    "joined": "its labels are counted",
    "repeated": "its labels change nothing: they were counted before, or later ones were",
    "unmatched": "no trace of this id came within the horizon",
    "late": "its trace has left the longest window",
    "ambiguous": "several services have a trace of this id, and it names none",
    "no_such_passage": "it labels passages only, and none of its trace's",
    "too_many_scorers": "there is no room for one scorer more (feedback.reserved)",
    "shed": "too much feedback was waiting",
    "internal_error": "counting it failed",
}
WAITING = "waiting"  # for its trace: what becomes of it is not known yet


@dataclass(frozen=True, slots=True)
class LabelDocument:
    """The labels of one feedback.

    Args:
        trace: The hash of the trace's id, in hexadecimal.
        service: The service as the sender names it, if at all.
        timestamp: The time that the sender gives.
        scorer: Who labelled.
        labels: The labels as of that time, by hashes of passages.
        probability: With which the trace was chosen to be labelled.
    """

    trace: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    service: Id | None
    timestamp: Timestamp
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    labels: Annotated[TimedLabels, Field(max_length=4 * MAX_PASSAGES)]
    probability: Annotated[float, Field(gt=0, le=1)] | None

    @classmethod
    def of(cls, feedback: Feedback) -> LabelDocument:
        """Return what a feedback gives."""
        return cls(
            trace=trace_key(feedback.trace_id).hex(),
            service=feedback.service,
            timestamp=feedback.timestamp,
            scorer=feedback.scorer,
            labels=read_labels(feedback),
            probability=feedback.probability,
        )

    def given(self, at: float) -> GivenLabels:
        """Return the labels as of Unix time `at`."""
        labels = tuple(one._replace(at=at) for one in self.labels)
        if self.probability is None:
            return GivenLabels(labels)
        return GivenLabels(labels, LabelProbability(at, self.probability))


_WIRE = TypeAdapter(LabelDocument)


def encode_labels(document: LabelDocument) -> bytes | DecodeFailure:
    """Return the JSON that is sent on over Kafka, to where the service is counted."""
    if document.service is None:  # a trace id does not tell it
        return DecodeFailure(INVALID, (("service", "is needed over Kafka"),), b"")
    return _WIRE.dump_json(document)


def decode_labels(data: bytes) -> LabelDocument | DecodeFailure:
    """Decode what `encode_labels` returned."""
    try:
        document = _WIRE.validate_json(data)
        effective_labels(document.labels)  # here, and not where a lock is held
    except ValidationError as error:
        return DecodeFailure.of_validation(INVALID, error, data)
    except ValueError as error:
        return DecodeFailure(INVALID, (("labels", str(error)[:200]),), data)
    return document


def _document(item: Feedback | DecodeFailure) -> LabelDocument | DecodeFailure:
    return item if isinstance(item, DecodeFailure) else LabelDocument.of(item)


def _decode_body(body: bytes) -> Iterator[LabelDocument | DecodeFailure]:
    return map(_document, decode_feedback_body(body))


DOCUMENTS = DocumentKind(
    path="/v1/feedback",
    schema=SCHEMA,
    topic="feedback",
    max_bytes=MAX_BYTES,
    max_waiting=20_000,
    decode=lambda data: _document(decode_feedback(data)),
    decode_body=_decode_body,
    read_file=lambda path: map(_document, read_feedback(path)),
    encode_sent=encode_labels,
    decode_sent=decode_labels,
    replies=dict.fromkeys((*OUTCOMES, WAITING), "accepted"),
)
