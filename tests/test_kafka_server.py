"""The Kafka that other tests run against starts, and keeps its data.

Its secure listeners are tested in tests/kafka/test_connection_security.py, three nodes in
tests/kafka/test_chaos.py.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests import kafka_server as fixture
from tests.kafka_server import KafkaServer, kafka_server

TOPIC = "rag.traces"
WAIT_MS = 20_000  # on two busy cores


def create_topic(server: KafkaServer) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
    admin.wait_for_topics([TOPIC])
    admin.close()


def send(bootstrap: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        producer.send(TOPIC, value).get(timeout=WAIT_MS / 1000)
    finally:
        producer.close(timeout=0)


def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_MS
    )
    consumer.assign([TopicPartition(TOPIC, 0)])
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


@pytest.mark.real
@pytest.mark.slow
def test_a_restart_keeps_topics_and_records(tmp_path: Path) -> None:
    with kafka_server(tmp_path) as server:
        create_topic(server)
        send(server.bootstrap, b"one")
        before = server.nodes[0].pid
        server.restart()
        assert server.nodes[0].pid != before
        send(server.bootstrap, b"two")
        server.restart(kill=True)
        assert read(server.bootstrap, 2) == [b"one", b"two"]
    assert server.nodes[0].pid is None


def fake_maven(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Maven that runs `script`, and a project folder without jars."""
    program = folder / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(fixture, "ROOT", folder)


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making = (
        'for each in "$@"; do case "$each" in -DoutputDirectory=*) mkdir "${each#*=}";; esac; done'
    )
    fake_maven(tmp_path, f"echo called >>{tmp_path}/calls; {making}", monkeypatch)
    assert fixture.fetch() == fixture.fetch() == tmp_path / f".cache/kafka-{fixture.VERSION}"
    assert (tmp_path / "calls").read_text() == "called\n"


@pytest.mark.parametrize(("ci", "outcome"), [("", Skipped), ("true", Failed)])
def test_jars_that_cannot_be_fetched_skip_the_test_but_fail_it_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    fake_maven(tmp_path, "echo no such line; exit 1", monkeypatch)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"could not fetch Kafka .*: no such line"):
        fixture.fetch()
    assert not (tmp_path / f".cache/kafka-{fixture.VERSION}").exists()
