"""Index events over Kafka: in the topic of the traces, counted where their service is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.kafka.score_records import decode_score, encode_score
from ragmeter.kafka.scores_topic import DocumentRecord, decode_scores_message, encode_document
from ragmeter.kafka.span_records import MessageEncoding, message_encoding
from ragmeter.kafka.wire import BadRecord
from ragmeter.parts.collection import document_kinds
from ragmeter.parts.index.part import IndexPart

from tests.kafka.cluster import workers
from tests.kafka.messages import Processing, message
from tests.kafka.place import Place
from tests.kafka.state.partition import apply, commit, record, reloaded, state_of
from tests.parts.index.samples import event, event_line
from tests.traces import trace_line
from tests.waiting import until

KINDS = document_kinds(PARTS, AgentSettings())


def read(value: bytes, arrived: float | None = None) -> tuple[bytes | None, Any]:
    at = None if arrived is None else int(1000 * arrived)
    (found,) = Processing().take(message(value, timestamp=at))
    return found.key, decode_scores_message(found.value or b"", KINDS)


def test_an_event_goes_to_the_partition_of_its_service() -> None:
    assert read(event_line(7)) == (b"bot", DocumentRecord("index", event(7), 1_790_000_007.0))
    with pytest.raises(BadRecord):
        decode_score(encode_document("index", event_line(7), 1.0))
    assert isinstance(decode_scores_message(encode_score(record(1))), list)


def test_a_time_after_the_arrival_is_that_of_the_arrival() -> None:
    assert read(event_line(7), arrived=1_700_000_000.0)[1].at == 1_700_000_000.0


def test_a_bad_event_is_a_dead_letter_with_its_reason() -> None:
    messages = [
        message(event_line(7, index_version="")),
        message(event_line(7, schema="ragmeter.index/2")),
    ]
    assert Processing().letters(*messages) == ["invalid_index_event"] * 2


def test_a_trace_that_speaks_of_events_is_a_trace() -> None:
    assert isinstance(read(trace_line(1, answer="ragmeter.index/1"))[1], list)


def test_an_event_is_not_taken_for_otlp() -> None:
    assert message_encoding(event_line(), (), "auto") is MessageEncoding.NATIVE


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encode_document("index", b"{", 1.0), "invalid_json"),
        (encode_document("index", event_line(event_id=""), 1.0), "invalid_index_event"),
        (encode_document("index", event_line(), -1.0), "invalid_record"),
        (encode_document("index", event_line(), 1.0)[:-1], "invalid_json"),
    ],
)
def test_a_record_that_makes_no_sense_is_bad(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as found:
        decode_scores_message(data, KINDS)
    assert found.value.failure.reason == reason


def test_a_partition_keeps_what_was_counted_and_counts_nothing_twice() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    apply(
        state,
        [DocumentRecord("index", event(1), 5.0), record(1), DocumentRecord("index", event(1), 5.0)],
    )
    assert state.changed
    commit(state, rows)
    again = reloaded(rows)
    assert list(again.aggregator.parts.samples()) == list(state.aggregator.parts.samples())
    apply(again, [DocumentRecord("index", event(1), 5.0), DocumentRecord("index", event(2), 6.0)])
    commit(again, rows)
    part = again.aggregator.parts["index"]
    assert isinstance(part, IndexPart)
    (found,) = part.indexes.versions()
    assert (found.build.processed, found.build.last) == (80, 6.0)
    outcomes = {
        labels[0][1]: value
        for (name, labels), value in again.aggregator.counters.items()
        if name == "ragmeter_index_events_total"
    }
    assert outcomes == {"counted": 2, "duplicate": 2}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_on_a_real_kafka_the_numbers_outlive_a_worker(place: Place) -> None:
    lines = [event_line(number) for number in range(3)]

    def shown(found: dict[str, float]) -> float:
        return next((v for k, v in found.items() if k.startswith("rag_index_documents")), 0.0)

    worker = place.worker()
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([*lines, lines[0], b'{"schema": "ragmeter.index/1"}'])
        until(lambda: shown(worker.metrics()) == 120)
        letters = place.letters()
        assert [dict(letter.headers)["reason"] for letter in letters] == [b"invalid_index_event"]
        assert json.loads(letters[0].value) == {"schema": "ragmeter.index/1"}
        worker.kill()
    other = place.worker()
    with workers(other):
        until(lambda: shown(other.metrics()) == 120)
        place.produce([event_line(9), lines[1]])
        until(lambda: shown(other.metrics()) == 160)
