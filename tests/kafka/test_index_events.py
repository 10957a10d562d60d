"""Index events over Kafka: in the topic of the traces, counted where their service is."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ragmeter.kafka.processors.score import ScoreProcessor
from ragmeter.kafka.score_records import (
    BadRecord,
    IndexRecord,
    ScoreRecord,
    decode_score,
    decode_scores_message,
    encode_index,
    encode_score,
)
from ragmeter.kafka.span_records import MessageEncoding, message_encoding
from tests.aggregate.index_event_samples import event, event_line
from tests.kafka.cluster import workers
from tests.kafka.place import Place
from tests.kafka.processors.test_score import FakeProcessor
from tests.kafka.state.partition import commit, record, reloaded, state_of
from tests.traces import trace_line
from tests.waiting import until


class Sending(FakeProcessor):
    """A processor whose broker takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[bytes, bytes]] = []

    async def _send(self, **record: Any) -> asyncio.Future[None]:
        self.records.append((record["key"], record["value"]))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def take(self, value: bytes, arrived: float | None = None) -> None:
        message = SimpleNamespace(
            value=value, partition=0, offset=5, timestamp=arrived, timestamp_type=1, headers=()
        )
        processor: ScoreProcessor = self.whole
        asyncio.run(processor._handle(cast(Any, SimpleNamespace(message=message))))


def test_an_event_goes_to_the_partition_of_its_service() -> None:
    processor = Sending()
    processor.take(event_line(7))
    ((key, value),) = processor.records
    assert key == b"bot"
    found = decode_scores_message(value)
    assert found == IndexRecord(event(7), 1_790_000_007.0)
    with pytest.raises(BadRecord):
        decode_score(value)
    whole = encode_score(record(1))
    assert isinstance(decode_scores_message(whole), ScoreRecord)


def test_a_time_after_the_arrival_is_that_of_the_arrival() -> None:
    processor = Sending()
    processor.take(event_line(7), arrived=1_700_000_000.0)
    found = decode_scores_message(processor.records[0][1])
    assert isinstance(found, IndexRecord)
    assert found.at == 1_700_000_000.0


def test_a_bad_event_is_a_dead_letter_with_its_reason() -> None:
    processor = Sending()
    processor.take(event_line(7, index_version=""))
    processor.take(event_line(7, schema="ragmeter.index/2"))
    assert processor.buried == ["invalid_index_event"] * 2
    assert processor.records == []


def test_a_trace_that_speaks_of_events_is_a_trace() -> None:
    processor = Sending()
    processor.take(trace_line(1, answer="ragmeter.index/1"))
    assert isinstance(decode_scores_message(processor.records[0][1]), ScoreRecord)


def test_an_event_is_not_taken_for_otlp() -> None:
    assert message_encoding(event_line(), (), "auto") is MessageEncoding.NATIVE


@pytest.mark.parametrize(
    "data",
    [
        encode_index(b"{", 1.0),
        encode_index(event_line(event_id=""), 1.0),
        encode_index(event_line(), -1.0),
        encode_index(event_line(), 1.0)[:-1],
    ],
)
def test_a_record_that_makes_no_sense_is_bad(data: bytes) -> None:
    with pytest.raises(BadRecord) as found:
        decode_scores_message(data)
    assert found.value.reason == "invalid_record"


def test_a_partition_keeps_what_was_counted_and_counts_nothing_twice() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    state.apply([IndexRecord(event(1), 5.0), record(1), IndexRecord(event(1), 5.0)])
    assert state.changed
    head = commit(state, rows)
    again = reloaded(rows, head)
    assert again.aggregator.indexing.gauges() == state.aggregator.indexing.gauges()
    again.apply([IndexRecord(event(1), 5.0), IndexRecord(event(2), 6.0)])
    commit(again, rows)
    (found,) = again.aggregator.indexing.versions()
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
        until(lambda: shown(worker.metrics()) == 120, 60)
        letters = place.letters()
        assert [dict(letter.headers)["reason"] for letter in letters] == [b"invalid_index_event"]
        assert json.loads(letters[0].value) == {"schema": "ragmeter.index/1"}
        worker.kill()
    other = place.worker()
    with workers(other):
        until(lambda: shown(other.metrics()) == 120, 120)
        place.produce([event_line(9), lines[1]])
        until(lambda: shown(other.metrics()) == 160, 60)
