"""Feedback from its topic: to the partition of its service, or a dead letter with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.core.feedback import Feedback
from ragmeter.kafka.scores_topic import DocumentRecord
from ragmeter.kafka.wire import BadRecord
from ragmeter.metrics.merged_labels import trace_key
from ragmeter.parts.labels.documents import LabelDocument

from tests.kafka.messages import Processing, message
from tests.kafka.settings import settings_of
from tests.parts.labels.samples import decode
from tests.tables import each_row
from tests.traces import START

LABEL = {
    "trace_id": "t1",
    "service": "bot",
    "timestamp": START,
    "answer": {"helpful": True},
    "passages": {"kb-1": {"misleading": False}},
}


def line(**changes: Any) -> bytes:
    return json.dumps({k: v for k, v in {**LABEL, **changes}.items() if v is not None}).encode()


class FakeProcessor(Processing):
    """A processor of feedback."""

    def __init__(self, **kafka: Any) -> None:
        super().__init__(settings_of(kafka=kafka))
        self.records: list[tuple[bytes | None, bytes]] = []

    def read(self, value: bytes, arrived: float | None = None) -> DocumentRecord:
        at = None if arrived is None else int(1000 * arrived)
        (record,) = self.take(message(value, timestamp=at), feedback=True)
        self.records.append((record.key, record.value or b""))
        found = decode(record.value or b"")
        assert isinstance(found, DocumentRecord)
        return found


def test_it_goes_to_the_partition_of_its_service_without_ids_in_it() -> None:
    processor = FakeProcessor()
    record = processor.read(line())
    document: Any = record.document
    assert document == LabelDocument.of(Feedback.model_validate(LABEL))
    assert (record.part, record.at, document.trace) == ("labels", START, trace_key("t1").hex())
    ((key, value),) = processor.records
    assert key == b"bot"
    assert b"t1" not in value
    assert b"kb-1" not in value


def test_a_label_from_the_future_is_one_of_its_arrival() -> None:
    """Of two words the later holds: one wrong clock must not have the last word for years."""
    assert FakeProcessor().read(line(timestamp=START + 9e6), arrived=START).at == START
    assert FakeProcessor().read(line(), arrived=START + 50).at == START


def test_who_names_no_service_is_told_so() -> None:
    processor = FakeProcessor()
    (letter,) = processor.take(message(line(service=None)), feedback=True)
    assert letter.topic == "rag.dead"
    assert letter.headers["reason"] == b"invalid_feedback"
    assert json.loads(letter.headers["error"])[0]["field"] == "service"


@each_row(
    "change",
    [
        (b'"trace":"', b'"trace":"x'),
        (b'"service":"bot"', b'"service":""'),
        (b'"labels":[[""', b'"labels":[["p"'),
        (b'"helpful"', b'"witty"'),
        (b'"at":', b'"at":-'),
    ],
)
def test_a_record_that_makes_no_sense_is_bad(change: tuple[bytes, bytes]) -> None:
    processor = FakeProcessor()
    processor.read(line())
    ((_, data),) = processor.records
    assert change[0] in data
    with pytest.raises(BadRecord):
        decode(data.replace(*change, 1))


@each_row(
    ("value", "reason"),
    [
        (b"", "invalid_json"),
        (b"{nonsense", "invalid_json"),
        (b"[" + line() + b"]", "invalid_feedback"),
        (line(answer={}, passages={}), "invalid_feedback"),
        (line(scorer="judge"), "invalid_feedback"),
        (b" " * (2**20 + 1), "too_large"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(value: bytes, reason: str) -> None:
    processor = FakeProcessor()
    assert processor.letters(message(value), feedback=True) == [reason]
    assert processor.counters.get("ragmeter_dead_letters_total", (("reason", reason),)) == 1
