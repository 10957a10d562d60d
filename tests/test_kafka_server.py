"""The Kafka that other tests run against: starts, keeps its data, asks for credentials."""

from __future__ import annotations

import asyncio
import gc
import ssl
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import Failed, Skipped
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests import kafka_server as fixture
from tests.kafka_security import PASSWORD, USER
from tests.kafka_server import KafkaServer, kafka_server

TOPIC = "rag.traces"
WAIT_MS = 20_000  # of a client of three nodes on two busy cores, one of them gone


def create_topic(server: KafkaServer, copies: int = 1) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=copies)])
    admin.wait_for_topics([TOPIC])
    admin.close()


def send(bootstrap: str, value: bytes, **security: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", **security)
    try:
        producer.send(TOPIC, value).get(timeout=WAIT_MS / 1000)
    finally:
        producer.close(timeout=0)


def is_refused(bootstrap: str, **security: Any) -> bool:
    """Asked of aiokafka: it gives up at once, and kafka-python tries again for 30 s."""

    async def connect() -> bool:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **security)
        try:
            await producer.start()
        except KafkaConnectionError:
            return True
        finally:
            await producer.stop()
        return False

    # It leaves the socket of a connection that was refused to the garbage collector.
    with warnings.catch_warnings(category=ResourceWarning, action="ignore"):
        refused = asyncio.run(connect())
        gc.collect()
    return refused


def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_MS
    )
    consumer.assign([TopicPartition(TOPIC, 0)])
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


@pytest.mark.real
def test_kafka_takes_records_and_gives_them_back(tmp_path: Path) -> None:
    with kafka_server(tmp_path) as server:
        create_topic(server)
        send(server.bootstrap, b"one")
        assert read(server.bootstrap, 1) == [b"one"]
    assert server.nodes[0].pid is None


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


@pytest.mark.real
@pytest.mark.slow
def test_three_nodes_go_on_with_two(tmp_path: Path) -> None:
    with kafka_server(tmp_path, nodes=3) as server:
        create_topic(server, copies=3)
        send(server.bootstrap, b"by three")
        server.nodes[0].kill()
        send(server.bootstrap, b"by two")
        assert read(server.bootstrap, 2) == [b"by three", b"by two"]
        server.nodes[0].start()
        send(server.bootstrap, b"by three again")
        assert read(server.bootstrap, 3)[2:] == [b"by three again"]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with kafka_server(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        create_topic(server)
        yield server


def password(mechanism: str, word: str = PASSWORD) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": word,
    }


def certificate(folder: Path, name: str | None) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return {"security_protocol": "SSL", "ssl_context": context}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_user_is_let_in_by_password_alone(secure: KafkaServer, mechanism: str) -> None:
    send(secure.sasl, b"let in", **password(mechanism))
    tls = certificate(secure.folder, None) | password(mechanism)
    send(secure.sasl_ssl, b"let in", **tls | {"security_protocol": "SASL_SSL"})
    assert not is_refused(secure.sasl, **password(mechanism))
    assert is_refused(secure.sasl, **password(mechanism, "wrong"))


@pytest.mark.real
@pytest.mark.slow
def test_a_client_is_let_in_by_a_certificate_of_the_authority(secure: KafkaServer) -> None:
    send(secure.ssl, b"let in", **certificate(secure.folder, "client"))
    assert not is_refused(secure.ssl, **certificate(secure.folder, "client"))
    assert is_refused(secure.ssl, **certificate(secure.folder, "stranger"))
    assert is_refused(secure.ssl, **certificate(secure.folder, None))


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
