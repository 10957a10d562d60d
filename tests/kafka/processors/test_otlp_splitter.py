"""OTLP messages on their way into the topic of the spans, without a broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.counters import Counters
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.stored_spans import StoredPart
from ragmeter.kafka.processors.delivery import partition_for_key
from ragmeter.kafka.processors.otlp import OtlpSplitter
from ragmeter.kafka.span_records import MessageEncoding, decode_spans

from tests.kafka.otlp_bodies import as_json, as_proto, rag_run
from tests.kafka.settings import settings_of

PARTITIONS = 4


class Topic:
    def __init__(self, limit: int = 2**20, **privacy: Any) -> None:
        self.records: dict[int, list[list[StoredPart]]] = defaultdict(list)
        self.counters = Counters()
        redactor = Redactor(PrivacySettings(**privacy))
        settings = settings_of(kafka={"partitions": PARTITIONS}, limits={"trace_bytes": limit})
        self.way = OtlpSplitter(settings, redactor, self.counters)

    def take(self, body: bytes, encoding: MessageEncoding = MessageEncoding.PROTO) -> None:
        found = asyncio.run(self.way.split_request(body, encoding))
        self.failure = found if isinstance(found, DecodeFailure) else None
        for record in found if isinstance(found, list) else ():
            assert record.partition is not None
            self.records[record.partition].append(decode_spans(record.value or b""))

    @property
    def lines(self) -> set[bytes]:
        return {part.line for found in self.records.values() for one in found for part in one}

    def counted(self) -> dict[str, float]:
        return {"/".join(v for _, v in labels): by for (_, labels), by in self.counters.items()}


SPANS = [span for n in range(20) for span in rag_run(n, "bot")]


def test_all_spans_of_a_trace_go_to_one_partition_in_either_form() -> None:
    found = []
    for body, encoding in (
        (as_proto(SPANS), MessageEncoding.PROTO),
        (as_json(SPANS), MessageEncoding.JSON),
    ):
        topic = Topic()
        topic.take(body, encoding)
        assert len(topic.lines) == len(SPANS)
        for partition, records in topic.records.items():
            assert len(records) == 1
            for part in records[0]:
                assert partition_for_key(part.part.trace, PARTITIONS) == partition
        assert len(topic.records) == PARTITIONS
        found.append(topic.lines)
    assert found[0] == found[1]


def test_what_is_large_goes_in_several_records() -> None:
    topic = Topic(limit=2000)
    topic.take(as_proto(SPANS))
    assert len(topic.lines) == len(SPANS)
    for records in topic.records.values():
        assert len(records) > 1


def test_a_span_that_no_message_can_hold_is_counted() -> None:
    spans = rag_run(1, "bot")
    spans[0].attributes["big"] = "x" * 5000
    topic = Topic(limit=4000)
    topic.take(as_proto(spans))
    assert len(topic.lines) == len(spans) - 1
    assert topic.counted() == {"traces/too_large": 1}


def test_spans_are_redacted_before_they_are_kept_anywhere() -> None:
    topic = Topic(redact=[{"name": "reset", "pattern": "reset", "replacement": "#"}])
    topic.take(as_proto(rag_run(1, "bot")))
    assert not any(b"reset" in line for line in topic.lines)
    assert any(b"#" in line for line in topic.lines)
    assert topic.counters.get("ragmeter_redactions_total", (("rule", "reset"),)) > 0


def logs(**fields: Any) -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(**fields)
    record.event_name = "gen_ai.user.message"
    record.body.kvlist_value.values.add(key="content").value.string_value = "How?"
    return request.SerializeToString()


def test_log_records_are_told_from_spans() -> None:
    topic = Topic()
    topic.take(logs(trace_id=b"\1" * 16, span_id=b"\2" * 8, time_unix_nano=5))
    ((record,),) = topic.records.values()
    assert [part.part.log for part in record] == [True]
    topic.take(logs())  # of no trace: nobody's content
    assert len(topic.lines) == 1
    assert topic.counted() == {"logs/no_content": 1}


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (b"\n\x05oops", MessageEncoding.PROTO, "bad_protobuf"),
        (b'{"resourceSpans": [', MessageEncoding.JSON, "bad_json"),
        (as_proto(rag_run(1, "bot"))[:-5], MessageEncoding.PROTO, "bad_protobuf"),
        (
            b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"no ids"}]}]}]}',
            MessageEncoding.JSON,
            "invalid_otlp",
        ),
    ],
)
def test_a_message_of_which_nothing_is_of_use_is_a_dead_letter(
    body: bytes, encoding: MessageEncoding, reason: str
) -> None:
    topic = Topic()
    topic.take(body, encoding)
    assert topic.failure
    assert topic.failure.reason == reason
    assert topic.records == {}
    assert sum(topic.counted().values()) >= 1


def test_our_own_telemetry_is_passed_over_in_silence() -> None:
    topic = Topic()
    topic.take(as_proto(rag_run(1, "ragmeter")))
    assert topic.records == {}
    assert topic.counted() == {"traces/own": 3}
