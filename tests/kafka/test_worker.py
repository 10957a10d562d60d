"""`ragmeter worker` against a real Kafka: what it exports is what the embedded agent finds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import Settings
from agent.ingest.native import Bad, decode_one
from agent.pipeline import Instrument
from agent.rules import rules_of
from exporters.prometheus import PrometheusExporter
from tests.kafka.cluster import (
    PARTITIONS,
    SERVICES,
    SETTINGS,
    Worker,
    dead_letters,
    make_topics,
    produce,
    quality,
    samples,
    traffic,
    until,
    workers,
)
from tests.kafka_server import KafkaServer, kafka_server
from tests.traces import trace_line


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    with kafka_server(tmp_path / "kafka") as server:
        make_topics(server)
        yield server


def embedded(folder: Path, lines: list[bytes]) -> dict[str, float]:
    """What the embedded agent exports for the same traces."""
    folder.mkdir(exist_ok=True)
    state = {"path": str(folder / "state.db"), "dead_letters": str(folder / "dead.jsonl")}
    settings = Settings.model_validate({**SETTINGS, "state": state})
    items = [decode_one(line, 2**20) for line in lines]
    instrument = Instrument(settings, rules_of(settings), live=False)
    instrument.start()
    try:
        instrument.accept(list(zip(items, range(len(items)), strict=True)), "test", written=set())
        instrument.wait_idle()
        text = PrometheusExporter(instrument).render().decode()
    finally:
        instrument.stop(10)
    return quality(samples(text))


def good(lines: list[bytes]) -> int:
    return sum(not isinstance(decode_one(line, 2**20), Bad) for line in lines)


def assert_same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_one_worker_finds_what_the_embedded_agent_does(server: KafkaServer, tmp_path: Path) -> None:
    lines = traffic()
    worker = Worker(server, tmp_path, "a")
    with workers(worker):
        until(lambda: worker.ready)
        produce(server, lines)
        until(lambda: worker.traces() >= good(lines))
        found = worker.metrics()
        assert_same(quality(found), embedded(tmp_path, lines))
        letters = dead_letters(server)
        assert sorted(letter.value for letter in letters) == sorted(
            line for line in lines if line.startswith(b"{no json")
        )
        headers = dict(letters[0].headers)
        assert headers["reason"] == b"invalid_json"
        assert headers["topic"] == b"rag.traces"
        # what is no record of ours goes the same way, and holds up nothing
        produce(server, [b"{}"] * PARTITIONS, topic="rag.scores")
        again = [trace_line(1000 + n, service=name) for n, name in enumerate(SERVICES)]
        produce(server, again)
        until(lambda: worker.traces() == good(lines) + len(again))
        letters = [letter for letter in dead_letters(server) if letter.value == b"{}"]
        assert [dict(letter.headers)["topic"] for letter in letters] == [b"rag.scores"] * PARTITIONS
        assert worker.stop() == 0, worker.log


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing_and_counts_nothing_twice(
    server: KafkaServer, tmp_path: Path
) -> None:
    lines = traffic(1200)
    worker = Worker(server, tmp_path, "a", in_flight=16)
    with workers(worker):
        until(lambda: worker.ready)
        producing = threading.Thread(target=produce, args=(server, lines))
        producing.start()
        until(lambda: worker.traces() >= 100)
        assert worker.traces() < good(lines), "the kill comes too late to show anything"
        worker.kill()
        producing.join()
        worker.start()
        until(lambda: worker.traces() >= good(lines), 80)
        time.sleep(1)  # what would be counted twice comes now
        assert_same(quality(worker.metrics()), embedded(tmp_path, lines))
        assert {letter.value for letter in dead_letters(server)} == {
            line for line in lines if line.startswith(b"{no json")
        }


@pytest.mark.slow
def test_each_service_is_exported_by_exactly_one_worker(
    server: KafkaServer, tmp_path: Path
) -> None:
    lines = traffic(600)
    pair = [Worker(server, tmp_path, name) for name in "ab"]
    with workers(*pair):
        until(lambda: all(worker.ready for worker in pair))
        produce(server, lines[:300])
        until(lambda: sum(worker.traces() for worker in pair) >= good(lines[:300]))
        exported = [services(worker) for worker in pair]
        assert all(exported), "both have a share"
        assert sorted([*exported[0], *exported[1]]) == sorted(SERVICES)
        found = quality(pair[0].metrics()) | quality(pair[1].metrics())
        assert_same(found, embedded(tmp_path / "first", lines[:300]))
        assert pair[0].stop() == 0, pair[0].log
        until(lambda: services(pair[1]) == set(SERVICES))
        produce(server, lines[300:], 300)
        until(lambda: pair[1].traces() >= good(lines))
        assert_same(quality(pair[1].metrics()), embedded(tmp_path / "all", lines))


def services(worker: Worker) -> set[str]:
    found = worker.metrics()
    return {name for name in SERVICES if any(f'service="{name}"' in key for key in found)}


@pytest.mark.slow
def test_a_worker_waits_for_brokers_that_are_down_and_says_so(
    server: KafkaServer, tmp_path: Path
) -> None:
    server.stop()
    worker = Worker(server, tmp_path, "a")
    with workers(worker):
        until(lambda: "next try in" in worker.log)
        assert not worker.ready
        assert worker.get("/healthz") == "ok\n"
        assert "ragmeter_ready 0" in worker.get("/metrics")
        server.start()
        until(lambda: worker.ready)
        assert worker.stop() == 0, worker.log


@pytest.mark.slow
def test_a_worker_goes_on_after_the_broker_was_killed(server: KafkaServer, tmp_path: Path) -> None:
    lines = traffic(600)
    worker = Worker(server, tmp_path, "a")
    with workers(worker):
        until(lambda: worker.ready)
        produce(server, lines[:300])
        until(lambda: worker.traces() >= 50)
        server.restart(kill=True)
        produce(server, lines[300:], 300)
        until(lambda: worker.traces() >= good(lines))
        assert_same(quality(worker.metrics()), embedded(tmp_path, lines))
        assert worker.process is not None
        assert worker.process.poll() is None
