"""Rows of the worst traces: what a state keeps of them fits into the topic of the state."""

from __future__ import annotations

import uuid

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import MAX_BYTES, ScoreRecord, SourceOffset, encode_score
from ragmeter.kafka.state.evidence_rows import EvidenceRows
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import MAX_ID

from tests.kafka_server import KafkaServer
from tests.traces import make_trace
from tests.waiting import PATIENCE

WIDE = "\U0001f600" * MAX_ID  # 12 bytes each in the key of a row


def largest(extra: int = 0) -> ScoreRecord:
    record = ScoreRecord(Scorer().score(make_trace(1)).trace, SourceOffset(1, 2))
    tags = {"t": ""}
    bare = record.scored._replace(passages=None)  # as evidence keeps it
    record.scored = bare._replace(service=WIDE, trace_id=WIDE, tags=tags)
    tags["t"] = "x" * (MAX_BYTES - len(encode_score(record)) + extra)
    return record


@pytest.mark.real
def test_the_largest_row_is_taken_by_a_topic_as_kafka_makes_it(broker: KafkaServer) -> None:
    kept = EvidenceRows(ContentPolicy())
    kept.add((WIDE, WIDE), largest())
    ((key, value),) = kept.changes.items()
    assert len(value or b"") > MAX_BYTES
    topic = f"t{uuid.uuid4().hex[:8]}"
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        admin.wait_for_topics([topic])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=2**22)
    try:
        producer.send(topic, value, key).get(20)
    finally:
        producer.close(timeout=PATIENCE)


def test_a_record_that_is_too_large_for_a_row_is_left_out() -> None:
    record = largest(extra=1)
    kept = EvidenceRows(ContentPolicy())
    kept.add((WIDE, WIDE), record)
    assert not kept.changes
    assert kept.get((WIDE, WIDE)) is None
