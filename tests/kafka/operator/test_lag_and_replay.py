"""`ragmeter replay --to kafka` and `ragmeter kafka lag` on a real broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from kafka import TopicPartition
from kafka.errors import NoError, RetriableError
from kafka.structs import OffsetAndMetadata
from ragmeter.app.parts import PARTS
from ragmeter.cli.kafka import kafka_app
from ragmeter.cli.main import app
from ragmeter.config.settings import Settings
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.replay import ReplayState
from ragmeter.kafka.operator.administration import PartitionLag, provision
from ragmeter.kafka.operator.clients import admin, consumer, guarded, partitions_of, send_traces
from typer.testing import CliRunner

from tests.kafka_server import KafkaServer
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

TO_KAFKA = ["--to", "kafka", "-c"]


def traces(count: int) -> str:
    rows = [
        {
            "trace_id": f"t{n}",
            "service": "bot",
            "timestamp": "2026-01-01T00:00:00Z",
            "question": "q",
            "answer": "a",
        }
        for n in range(count)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def prepared(settings: Settings, tmp_path: Path) -> Path:
    with guarded(settings.kafka):
        provision(settings, PARTS)
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json", include={"kafka"})))
    return config


def read(settings: Settings, topic: str) -> list[tuple[bytes, bytes]]:
    """All that the topic holds now."""
    found: list[tuple[bytes, bytes]] = []
    with consumer(settings.kafka) as client:
        parts = partitions_of(client, settings.kafka, [topic])
        client.assign(parts)
        ends = client.end_offsets(parts)

        def whole() -> bool:
            for records in client.poll(timeout_ms=200).values():
                found.extend((record.key, record.value) for record in records)
            return all(client.position(part) >= ends[part] for part in parts)

        until(whole)
    return found


def set_offset(settings: Settings, part: TopicPartition, offset: int) -> None:
    """Commit an offset for the group. The coordinator of a new cluster's first group may be
    unavailable, loading or moving, and a client keeps the address of the one that it found: retry
    with a new client, as `ragmeter kafka lag` does."""

    def committed() -> bool:
        with admin(settings.kafka) as client:
            try:
                found = client.alter_group_offsets(
                    settings.kafka.group, {part: OffsetAndMetadata(offset, "", -1)}
                )
            except RetriableError:
                return False
        error = found[part]  # a class: the errors of a partition are returned, not raised
        assert error is NoError or issubclass(error, RetriableError), error
        return error is NoError

    until(committed, pause=0.2)


def test_a_file_is_sent_keyed_by_trace_id_and_the_lag_says_so(
    settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = settings_of()
    config = prepared(settings, tmp_path)
    file = tmp_path / "traces.jsonl"
    file.write_text(traces(50) + "{broken\n" + "{}\n")
    began = time.time()
    done = CliRunner().invoke(app, ["replay", str(file), *TO_KAFKA, str(config)])
    assert done.exit_code == 0, done.output
    assert "50 traces sent, 2 items unreadable" in done.output
    found = read(settings, settings.kafka.topics.traces)
    assert len(found) == 50
    assert all(json.loads(value)["trace_id"].encode() == key for key, value in found)

    parts = [TopicPartition(settings.kafka.topics.traces, n) for n in range(2)]
    set_offset(settings, parts[0], 3)
    notified = CliRunner().invoke(kafka_app, ["lag", "-c", str(config), "-f", "json"])
    assert notified.exit_code == 0, notified.output
    report = json.loads(notified.output)
    assert report["lag"] == 47
    by_part = {(row["topic"], row["partition"]): row for row in report["partitions"]}
    assert by_part[parts[0]]["committed"] == 3
    assert by_part[parts[1]]["committed"] is None
    assert by_part[parts[1]]["lag"] == by_part[parts[1]]["end"] > 0
    assert 0 <= by_part[parts[0]]["age_seconds"] <= time.time() - began + 1
    assert by_part[settings.kafka.topics.scores, 0]["lag"] == 0
    table = CliRunner().invoke(kafka_app, ["lag", "-c", str(config)])
    assert "47 records wait" in table.output


def test_a_replay_keeps_its_rate(settings_of: Callable[..., Settings], tmp_path: Path) -> None:
    settings = settings_of()
    prepared(settings, tmp_path)
    file = tmp_path / "traces.jsonl"
    file.write_text(traces(10))
    began = time.monotonic()
    with guarded(settings.kafka):
        done = send_traces(InputFile(file), settings, lambda _: None, rate=10)
    assert done == ReplayState(10, 0, len(traces(10)), True)
    assert time.monotonic() - began > 0.4
    assert {key for key, _ in read(settings, settings.kafka.topics.traces)} == {
        f"t{n}".encode() for n in range(10)
    }


@pytest.mark.usefixtures("swept")  # an interrupted producer leaves its thread until it is freed
def test_an_interrupted_replay_says_how_far_it_came(
    settings_of: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of()
    config = prepared(settings, tmp_path)
    file = tmp_path / "traces.jsonl"
    file.write_text(traces(10))
    calls = 0

    def sleep(seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        time.sleep(seconds)  # the earlier ones are acknowledged

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr("ragmeter.kafka.operator.clients.time", clock)
    done = CliRunner().invoke(app, ["replay", str(file), *TO_KAFKA, str(config), "--rate", "8"])
    assert done.exit_code != 0
    assert re.search(r"interrupted: [1-9] traces were sent", done.output), done.output
    monkeypatch.undo()
    again = ["replay", str(file), *TO_KAFKA, str(config)]
    assert CliRunner().invoke(app, again).exit_code == 0
    keys = [key for key, _ in read(settings, settings.kafka.topics.traces)]
    assert {f"t{n}".encode() for n in range(10)} == set(keys)


def test_without_topics_the_way_out_is_named(broker: KafkaServer, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    tree = {"bootstrap_servers": broker.bootstrap, "topics": {"prefix": "nothing-there."}}
    config.write_text(yaml.safe_dump({"kafka": tree}))
    file = tmp_path / "traces.jsonl"
    file.write_text(traces(1))
    for call in (["kafka", "lag", "-c"], ["replay", str(file), *TO_KAFKA]):
        done = CliRunner().invoke(app, [*call, str(config)])
        assert done.exit_code == 1
        assert "make it with `ragmeter kafka init`" in done.output, done.output


def test_what_the_retention_took_is_lost_and_not_lag() -> None:
    row = PartitionLag("t", 0, first=100, end=130, committed=90)
    assert (row.lag, row.lost) == (30, 10)
    assert PartitionLag("t", 0, first=100, end=130, committed=None).lost == 0
