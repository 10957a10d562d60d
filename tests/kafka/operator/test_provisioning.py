"""`ragmeter kafka init` on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource
from kafka.errors import UnknownBrokerIdError
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.cli.kafka import kafka_app
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator import administration
from ragmeter.kafka.operator.administration import ProvisionResult, provision
from ragmeter.kafka.operator.clients import KafkaFailed, ask, guarded
from typer.testing import CliRunner

from tests.kafka_server import KafkaServer

pytestmark = pytest.mark.real


def with_changes(settings: Settings, **kafka: object) -> Settings:
    tree = settings.model_dump(mode="json")
    tree["kafka"] |= kafka
    return AgentSettings.model_validate(tree)


def run(settings: Settings, **how: bool) -> ProvisionResult:
    with guarded(settings.kafka):
        return provision(settings, PARTS, **how)


def test_init_makes_all_topics_once(settings_of: Callable[..., Settings]) -> None:
    settings = settings_of()
    dry = run(settings, dry_run=True)
    assert len(dry.missing) == 8
    assert dry.created == []
    assert len(run(settings).created) == 8
    again = run(settings)
    assert (len(again.sound), again.created, again.differ) == (8, [], [])
    with KafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers) as admin:
        state = f"{settings.kafka.group}-aggregates"
        (found,) = admin.describe_topics([state])
        assert len(found["partitions"]) == settings.kafka.partitions
        configs = admin.describe_configs([ConfigResource("topic", state)])["topic"][state]
        assert configs["cleanup.policy"]["value"] == "compact"


def test_what_differs_is_told_and_only_harmless_changes_are_made(
    settings_of: Callable[..., Settings],
) -> None:
    settings = settings_of()
    topics = settings.kafka.topics
    run(settings)
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers)
    producer.send(topics.scores, b"x").get(10)
    producer.close()
    other = with_changes(settings, partitions=3, retention_hours=100)
    notified = {(row.topic, row.key): row.safe for row in run(other).differ}
    assert notified == {
        (topics.traces, "partitions"): True,
        (topics.traces, "retention.ms"): True,
        (topics.spans, "partitions"): False,
        (topics.spans, "retention.ms"): True,
        (topics.scores, "partitions"): False,
        (topics.scores, "retention.ms"): True,
        (topics.feedback, "partitions"): True,
    }
    done = run(other, apply=True)
    assert {(row.topic, row.key) for row in done.applied} == {
        k for k, safe in notified.items() if safe
    }
    left = [(topics.spans, "partitions"), (topics.scores, "partitions")]
    assert [(row.topic, row.key) for row in run(other).differ] == left
    shorter = with_changes(settings, partitions=3, retention_hours=1)
    assert run(shorter, apply=True).applied == []
    assert {(row.topic, row.key) for row in run(shorter).differ} == {
        *left,
        *((topic, "retention.ms") for topic in (topics.traces, topics.spans, topics.scores)),
    }


def test_the_command_and_its_exit_codes(
    settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = settings_of()
    config = tmp_path / "c.yaml"

    def call(*arguments: str, **changes: object) -> tuple[int, str]:
        tree = with_changes(settings, **changes).model_dump(mode="json", include={"kafka"})
        config.write_text(yaml.safe_dump(tree))
        done = CliRunner().invoke(kafka_app, ["init", "-c", str(config), *arguments])
        return done.exit_code, done.output

    assert call("--dry-run")[0] == 3
    code, text = call()
    assert code == 0
    assert f"{settings.kafka.topics.traces} (traces in, 2 partitions, delete) was created" in text
    assert call()[0] == 0
    code, text = call(retention_hours=100)
    assert code == 3
    assert "--apply does it" in text
    assert call("--apply", retention_hours=100)[0] == 0
    code, text = call(bootstrap_servers="127.0.0.1:1")
    assert code == 1
    assert text.count("\n") == 1, text
    assert "nobody listens there" in text


def test_a_wrong_password_is_one_line(
    broker: KafkaServer, settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    security = {"protocol": "SASL_PLAINTEXT", "username": "u", "password": "wrong-word"}
    config.write_text(
        yaml.safe_dump({"kafka": {"bootstrap_servers": broker.sasl, "security": security}})
    )
    done = CliRunner().invoke(kafka_app, ["init", "-c", str(config)])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1, done.output
    assert "refuses kafka.security.username" in done.output
    assert "wrong-word" not in done.output


def test_a_controller_that_the_client_does_not_know_yet_is_asked_again(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    create = KafkaAdminClient.create_topics

    def create_topics(client: KafkaAdminClient, *args: object, **options: object) -> object:
        calls.append(client)
        if len(calls) <= 2:
            raise UnknownBrokerIdError(3)
        return create(client, *args, **options)

    monkeypatch.setattr(KafkaAdminClient, "create_topics", create_topics)
    assert len(run(settings_of()).created) == 8
    assert len({id(client) for client in calls[:3]}) == 3  # each time with new metadata


def test_a_controller_that_stays_unknown_is_an_error(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_topics(*args: object, **options: object) -> None:
        raise UnknownBrokerIdError(3)

    monkeypatch.setattr(KafkaAdminClient, "create_topics", create_topics)
    monkeypatch.setattr(administration, "ask", partial(ask, seconds=1))
    with pytest.raises(KafkaFailed, match="UnknownBrokerIdError: 3"):
        run(settings_of())
