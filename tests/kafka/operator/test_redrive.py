"""`ragmeter kafka dlq` on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from ragmeter.app.parts import PARTS
from ragmeter.cli.kafka import kafka_app
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator import dead_letters as module
from ragmeter.kafka.operator.administration import provision
from ragmeter.kafka.operator.clients import (
    KafkaCommandError,
    KafkaFailed,
    consumer,
    escape_record,
    guarded,
)
from ragmeter.kafka.operator.dead_letters import redrive
from typer.testing import CliRunner

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def settings(settings_of: Callable[..., Settings]) -> Settings:
    found = settings_of()
    with guarded(found.kafka):
        provision(found, PARTS)
    return found


@pytest.fixture
def call(settings: Settings, tmp_path: Path) -> Callable[..., Any]:
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json", include={"kafka"})))
    return lambda *words: CliRunner().invoke(kafka_app, [*words, "-c", str(config)])


def bury(
    settings: Settings,
    bodies: list[bytes],
    reason: str = "invalid_json",
    source: str = "traces",
    *,
    first: int = 0,
) -> None:
    """As `ragmeter.kafka.processors.delivery` does."""
    topics = settings.kafka.topics
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers)
    for number, body in enumerate(bodies, first):
        headers = [
            ("reason", reason.encode()),
            ("error", b'[{"why": "bad\x1b[2J"}]'),
            ("topic", getattr(topics, source).encode()),
            ("partition", b"1"),
            ("offset", b"%d" % number),
            ("attempt", b"1"),
        ]
        producer.send(topics.dead, body, b"k%d" % number, headers).get(10)
    producer.close()


def sent(settings: Settings, source: str = "traces") -> list[Any]:
    reader = KafkaConsumer(
        bootstrap_servers=settings.kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=1_000,
    )
    topic = getattr(settings.kafka.topics, source)
    reader.assign([TopicPartition(topic, n) for n in range(2)])
    found = list(reader)
    reader.close()
    return found


def quiet(line: str) -> None:
    pass


def test_letters_are_listed_shown_and_sent_again_once(
    settings: Settings, call: Callable[..., Any]
) -> None:
    assert "no record at offset 0; it is empty" in call("dlq", "show", "0").output
    bury(settings, [b"\x1b[31mred\n", b"\xff\x00two"])
    bury(settings, [b"three"], "too_large", first=2)
    bury(settings, [b"\xff\x00two"], first=1)  # again, by a worker that began again
    listed = call("dlq", "list")
    assert listed.exit_code == 0, listed.output
    assert f"invalid_json  {settings.kafka.topics.traces}/1/0  9 B" in listed.output
    assert "\x1b" not in listed.output
    assert "3 dead letters, 3 not sent again" in listed.output
    shown = call("dlq", "show", "0")
    assert "\\x1b[31mred\\n" in shown.output
    assert "\x1b" not in shown.output
    assert call("dlq", "show", "1").output.endswith("\\xff\\x00two\n")
    none = call("dlq", "show", "77")
    assert none.exit_code == 1
    assert "it has 0 to 3" in none.output

    assert "1 sent" in call("dlq", "redrive", "--reason", "too_large").output
    (first,) = sent(settings)
    assert (first.key, first.value) == (b"k2", b"three")
    assert dict(first.headers) == {
        "attempt": b"1",
        "origin": f"{settings.kafka.topics.traces}/1/2".encode(),
        "letter": b"2",
    }
    assert "2 sent" in call("dlq", "redrive").output
    assert "0 sent" in call("dlq", "redrive").output
    found = Counter(record.value for record in sent(settings))
    assert found == {b"three": 1, b"\x1b[31mred\n": 1, b"\xff\x00two": 1}
    assert call("dlq", "list").output.count("sent again  ") == 3


@pytest.mark.parametrize(
    ("before", "source"), [(True, "traces"), (False, "traces"), (False, "feedback")]
)
def test_a_redrive_that_dies_within_a_batch_sends_nothing_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, before: bool, source: str
) -> None:
    """Before or after its second commit; each letter goes where it was read."""
    bodies = [b"%d" % n for n in range(7)]
    bury(settings, bodies, source=source)
    commit = KafkaProducer.commit_transaction
    commits = list[int]()

    def dies(self: Any) -> None:
        commits.append(1)
        if len(commits) == 2 and before:
            raise KeyboardInterrupt
        commit(self)
        if len(commits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "BATCH", 3)
    monkeypatch.setattr(KafkaProducer, "commit_transaction", dies)
    with guarded(settings.kafka), pytest.raises(KeyboardInterrupt):
        redrive(settings, quiet)
    with guarded(settings.kafka):
        done = redrive(settings, quiet)
    assert done.sent == (4 if before else 1)
    assert Counter(record.value for record in sent(settings, source)) == Counter(bodies)


def test_a_second_redrive_ends_the_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%d" % n for n in range(7)]
    bury(settings, bodies)
    monkeypatch.setattr(module, "BATCH", 3)
    first = True

    def second(line: str) -> None:
        nonlocal first
        if first:
            first = False
            assert redrive(settings, quiet).sent == 4

    with guarded(settings.kafka), pytest.raises(KafkaCommandError, match="goes on instead"):
        redrive(settings, second)
    assert Counter(record.value for record in sent(settings)) == Counter(bodies)


def test_what_cannot_be_sent_again_stays(settings: Settings, call: Callable[..., Any]) -> None:
    topics = settings.kafka.topics
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers)
    place = [("reason", b"too_large"), ("partition", b"0"), ("offset", b"5")]
    others = [[("topic", name.encode())] for name in (topics.spans, "x")]
    for more in (*others, [("topic", b"x"), ("truncated", b"1")]):
        producer.send(topics.dead, b"", headers=[*place, *more]).get(10)
    producer.send(topics.dead, b"no letter").get(10)
    producer.close()
    assert "0 sent" in (reported := call("dlq", "redrive").output), reported
    assert "3 cannot be" in reported
    for why in ("only their place", "spans: ", "not one of these settings"):
        assert f"not sent, {why}" in reported.replace("of a topic that is ", "")
    assert sent(settings) == []
    assert "1 other records" in call("dlq", "list").output


def test_nobody_reads_for_ever(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragmeter.kafka.operator import clients

    monkeypatch.setattr(clients, "QUIET_SECONDS", 0.5)
    with guarded(settings.kafka), consumer(settings.kafka) as reader:
        part = module.dead_letter_partition(reader, settings.kafka)
        with pytest.raises(KafkaFailed, match="nothing more was read"):
            list(clients.records_between(reader, part, 0, 10))


def test_bytes_are_escaped_and_cut() -> None:
    assert escape_record(b"a\nb\x1b\xff\xe2\x80\xae", 100) == "a\\nb\\x1b\\xff\\u202e"
    assert escape_record(b"abc", 2) == "ab... (3 bytes)"
    assert escape_record(None, 2) == ""
