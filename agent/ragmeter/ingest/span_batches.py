"""The spans or log events of one request, as both homes store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ragmeter.core.counters import CounterKey
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.stored_spans import (
    DecodeSummary,
    StoredPart,
    decode_parts,
)

TRACES = "traces"
LOGS = "logs"


def parts_total(signal: str, result: str) -> CounterKey:
    """Return the key of the counter of spans and log events."""
    return "ragmeter_otlp_spans_total", (("signal", signal), ("result", result))


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The spans or log events of one request."""

    signal: str  # TRACES or LOGS
    parts: Sequence[StoredPart]
    refused: Mapping[str, int] = field(default_factory=dict)  # parts not stored, by reason
    counts: Mapping[CounterKey, float] = field(default_factory=dict)


# Reasons of parts that are not stored and not lost either: a sender would only log an error.
SILENT_STATUSES = ("own", "no_content", "not_read")

BodyForm = Literal["protobuf", "json"]


def decode_batch(
    signal: str, form: BodyForm, body: bytes, redactor: Redactor
) -> tuple[SpanBatch, UndecodableBody | None]:
    """Decode and redact a body; a batch without parts comes with the error of its decoder."""
    return make_batch(
        signal, *decode_parts(body, redactor, logs=signal == LOGS, json=form == "json")
    )


def make_batch(
    signal: str, parts: list[StoredPart], summary: DecodeSummary
) -> tuple[SpanBatch, UndecodableBody | None]:
    """Make a batch of what `decode_parts` returned."""
    broken = None if summary.broken is None else UndecodableBody(*summary.broken)
    return SpanBatch(signal, parts, summary.refused, summary.counts), broken
