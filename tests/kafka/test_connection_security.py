"""The same block of settings opens a real broker for both clients, or both say why not."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth
from kafka import KafkaAdminClient
from ragmeter.config.kafka import KafkaSecurity, KafkaSettings
from ragmeter.kafka.broker_probe import BrokersUnreachable, probe_brokers
from ragmeter.kafka.connection import (
    KafkaSecurityError,
    client_options,
    faust_options,
    read_password,
    tls_context,
)

from tests.kafka_security import PASSWORD, USER, make_key_pair, make_token
from tests.kafka_server import KafkaServer

WORDS = {"username": USER, "password": PASSWORD}
SECONDS = 30.0  # to reach the broker, on a machine with other work
SLACK = 60.0  # without a bound the clients try for minutes
CASES = [
    ("bootstrap", {}),
    ("sasl", {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", **WORDS}),
    ("sasl", {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", **WORDS}),
    ("sasl", {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", **WORDS}),
    ("sasl_ssl", {"protocol": "SASL_SSL", "ca_file": "ca.pem", **WORDS}),
    (
        "ssl",
        {
            "protocol": "SSL",
            "ca_file": "ca.pem",
            "cert_file": "client.pem",
            "key_file": "client.key",
        },
    ),
]
CALLER = {"cert_file": "stranger.pem", "key_file": "stranger.key"}
REFUSED = [
    ("sasl", CASES[1][1] | {"password": "wrong"}, "refuses kafka.security.username"),
    ("sasl", CASES[3][1] | {"password": "wrong"}, "refuses kafka.security.username"),
    ("sasl", {}, "listener of another protocol (kafka.security.protocol)? SASL_PLAINTEXT is"),
    ("sasl_ssl", {}, "It speaks TLS: SSL or SASL_SSL"),
    ("sasl_ssl", CASES[1][1], "It speaks TLS: SASL_SSL"),
    ("sasl_ssl", {"protocol": "SSL", "ca_file": "ca.pem"}, "SASL_SSL is the one with a user"),
    ("sasl_ssl", CASES[4][1] | {"ca_file": "other.pem"}, "certificate is not accepted"),
    ("ssl", {"protocol": "SSL", "ca_file": "ca.pem"}, "cert_file"),
    ("ssl", CASES[5][1] | CALLER, "cert_file"),
    ("ssl", {}, "It speaks TLS: SSL or SASL_SSL"),
    ("bootstrap", {"protocol": "SSL"}, "listener of another protocol"),
    ("bootstrap", CASES[1][1], "asks for no password"),
]


def tokens_of(path: Path, token: str) -> dict[str, Any]:
    path.write_text(f"{token}\n")
    oauth = {"token_file": str(path), "extensions": {"logicalCluster": "lkc-1"}}
    return {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": oauth}


def kafka(broker: KafkaServer, listener: str, block: dict[str, Any]) -> KafkaSettings:
    files = {k: broker.folder / v for k, v in block.items() if k.endswith("_file")}
    return KafkaSettings.model_validate(
        {
            "bootstrap_servers": getattr(broker, listener),
            "security": block | files,
        }
    )


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.kafka.connection.REACH_SECONDS", SECONDS)


async def produce(options: dict[str, Any]) -> None:
    producer = AIOKafkaProducer(**options)
    try:
        await producer.start()
    finally:
        await producer.stop()
        await asyncio.sleep(0.1)  # TLS says good-bye


@pytest.mark.real
@pytest.mark.parametrize(("listener", "block"), CASES)
def test_both_clients_are_let_in(broker: KafkaServer, listener: str, block: dict[str, Any]) -> None:
    let_in(kafka(broker, listener, block))


@pytest.mark.real
def test_both_clients_are_let_in_by_a_token(broker: KafkaServer, tmp_path: Path) -> None:
    let_in(kafka(broker, "sasl", tokens_of(tmp_path / "token", make_token())))
    for token in (make_token(seconds=-300), "nonsense"):
        settings = kafka(broker, "sasl", tokens_of(tmp_path / "token", token))
        with pytest.raises(BrokersUnreachable, match=r"not accept the token|refuses the token"):
            asyncio.run(probe_brokers(settings, SECONDS))
    dead = {"token_url": "http://127.0.0.1:1/", "client_id": "c", "client_secret": "s"}
    block = {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": dead}
    with pytest.raises(BrokersUnreachable, match=r"no token from http://127\.0\.0\.1:1/"):
        asyncio.run(probe_brokers(kafka(broker, "sasl", block), SECONDS))
    gc.collect()


def let_in(settings: KafkaSettings) -> None:
    asyncio.run(probe_brokers(settings, SECONDS))
    with KafkaAdminClient(**client_options(settings)) as admin:
        assert len(admin.describe_cluster()["brokers"]) == 1
    # what Faust makes of its options for its consumer and its producer
    options = faust_options(settings)
    servers = [server.removeprefix("kafka://") for server in options["broker"]]
    found = credentials_to_aiokafka_auth(options["broker_credentials"])
    with warnings.catch_warnings(category=ResourceWarning, action="ignore"):
        asyncio.run(produce({"bootstrap_servers": servers, **found}))
        gc.collect()


@pytest.mark.real
@pytest.mark.parametrize(("listener", "block", "why"), REFUSED)
def test_who_is_not_let_in_is_told_why_in_one_line_and_in_time(
    broker: KafkaServer, listener: str, block: dict[str, Any], why: str
) -> None:
    began = time.monotonic()
    with pytest.raises(BrokersUnreachable) as raised:
        asyncio.run(probe_brokers(kafka(broker, listener, block), SECONDS))
    text = str(raised.value)
    assert why in text
    assert getattr(broker, listener) in text
    assert "\n" not in text
    assert PASSWORD not in text
    assert time.monotonic() - began < SECONDS + SLACK
    gc.collect()  # a socket that is left open would warn now


def test_nobody_there_and_nobody_answering() -> None:
    with pytest.raises(BrokersUnreachable, match="nobody listens there"):
        asyncio.run(probe_brokers(KafkaSettings(bootstrap_servers=["127.0.0.1:1"])))

    async def silent() -> float:
        held = []  # a writer that nobody holds hangs up

        async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)

        server = await asyncio.start_server(hold, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        with pytest.raises(BrokersUnreachable, match="no answer within 1 s"):
            await probe_brokers(KafkaSettings(bootstrap_servers=[f"127.0.0.1:{port}"]), seconds=1)
        server.close()
        return time.monotonic() - began

    with warnings.catch_warnings(category=ResourceWarning, action="ignore"):
        assert asyncio.run(silent()) < 1 + SLACK
        gc.collect()


def test_a_file_that_is_not_what_it_must_be_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for key in ("ca_file", "cert_file"):
        for path, why in ((tmp_path / "none", "No such file"), (empty, "no PEM file")):
            block = KafkaSecurity.model_validate({"protocol": "SSL", key: path})
            with pytest.raises(KafkaSecurityError, match=f"^kafka.security.{key}: .*{why}"):
                tls_context(block)


def test_a_certificate_and_its_key_are_told_apart(tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_key_pair(tmp_path, name)
    one = {"protocol": "SSL", "cert_file": tmp_path / "one.pem"}
    with pytest.raises(KafkaSecurityError, match=r"key_file: none is given, and .*one\.pem holds"):
        tls_context(KafkaSecurity.model_validate(one))
    with pytest.raises(KafkaSecurityError, match=r"key_file: .*other\.key is the key of another"):
        tls_context(KafkaSecurity.model_validate(one | {"key_file": tmp_path / "other.key"}))
    assert tls_context(KafkaSecurity.model_validate(one | {"key_file": tmp_path / "one.key"}))


def test_the_password_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "word"
    block = KafkaSecurity(protocol="SASL_SSL", username="u", password_file=path)
    with pytest.raises(KafkaSecurityError, match=r"password_file: .*No such file"):
        read_password(block)
    path.write_bytes("\ufeffpass word\r\n".encode())  # as some editors write it
    assert read_password(block) == "pass word"
    path.write_text("\n")
    with pytest.raises(KafkaSecurityError, match="one line is needed"):
        read_password(block)
