"""What the owner of a partition of spans hands on to the topic of the traces, without a broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.ingest.assembler import CloseReason, ClosingTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.stored_spans import serialise_spans
from ragmeter.kafka.processors.otlp import AssembleOwner

from tests.ingest.building import Run, documents
from tests.kafka.settings import settings_of

KIND = "openinference.span.kind"
PIECES = ["Write to bob@cor", "p.example."]


def streamed() -> Run:
    """A request whose answer came in pieces, none of which is an address."""
    run = Run("1" * 32, service="bot")
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in PIECES]
    content = {"input.value": "Whom do I write to?", "output.value": json.dumps(chunks)}
    root = run.span("query", None, (0, 2), {KIND: "CHAIN", **content})
    run.span("retrieve", root, (0, 1), {KIND: "RETRIEVER", **documents("We answer letters.")})
    return run


@pytest.mark.parametrize(
    ("rules", "answer"), [(["email"], "Write to [email]."), ([], "Write to bob@corp.example.")]
)
def test_what_a_stream_had_in_pieces_is_redacted_before_it_is_in_a_topic(
    rules: list[str], answer: str
) -> None:
    redactor = Redactor(PrivacySettings.model_validate({"redact": rules}))
    counts: Counts = {}
    run = streamed()
    spans = [redactor.span(span, counts) for span in run.spans]
    lines = [part.line for part in serialise_spans(spans, Counter())]
    published: list[str | None] = []
    owner = object.__new__(AssembleOwner)
    stub: Any = SimpleNamespace(
        settings=settings_of(),
        redactor=redactor,
        inspection=SimpleNamespace(
            listened=False,
            publish=lambda extracted: published.extend(one.answer for one in extracted.traces),
        ),
    )
    owner.parts = stub
    owner.tp = TopicPartition("rag.spans", 0)
    closing = ClosingTrace(bytes.fromhex("1" * 32), CloseReason.ROOT, 0)
    (record,), counted = asyncio.run(owner._hand_on(closing, lines))
    assert json.loads(record.value or b"")["answer"] == answer
    assert published == [answer]
    redactions = {key: by for key, by in counted.items() if "redact" in key[0]}
    assert sum(redactions.values()) == len(rules)
