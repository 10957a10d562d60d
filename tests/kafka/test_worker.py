"""`ragmeter worker` against a real Kafka: what it exports is what the embedded agent finds."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.kafka.cluster import SERVICES, SETTINGS, Worker, quality, traffic, workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.samples import samples
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

STOP_SECONDS = 10.0  # of a worker that has nothing to finish


def embedded(folder: Path, lines: list[bytes]) -> dict[str, float]:
    """What the embedded agent exports for the same traces."""
    folder.mkdir(exist_ok=True)
    state = {"path": str(folder / "state.db")}
    settings = AgentSettings.model_validate({**SETTINGS, "state": state})
    items = [decode_trace(line, 2**20) for line in lines]
    running = EmbeddedAgent(settings, load_configured_rules(settings), live=False, parts=PARTS)
    running.start()
    try:
        running.accept(list(zip(items, range(len(items)), strict=True)), "test", written=set())
        running.wait_idle()
        exporter = PrometheusExporter(running)
        text = (exporter.render() + exporter.render_detail()).decode()
    finally:
        running.stop(10)
    return quality(samples(text))


def good(lines: list[bytes]) -> int:
    return sum(not isinstance(decode_trace(line, 2**20), DecodeFailure) for line in lines)


def assert_same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def services(worker: Worker) -> set[str]:
    found = worker.metrics()
    return {name for name in SERVICES if any(f'service="{name}"' in key for key in found)}


def test_one_worker_finds_what_the_embedded_agent_does(place: Place, tmp_path: Path) -> None:
    lines = traffic()
    worker = place.worker()
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines)
        until(lambda: worker.traces() >= good(lines))
        assert_same(quality(worker.metrics()), embedded(tmp_path, lines))
        letters = place.letters()
        assert sorted(letter.value for letter in letters) == sorted(
            line for line in lines if line.startswith(b"{no json")
        )
        headers = dict(letters[0].headers)
        assert headers["reason"] == b"invalid_json"
        assert headers["topic"] == place.traces.encode()
        # what is no record of ours goes the same way, and holds up nothing
        place.produce([b"{}"] * place.partitions, topic=place.scores)
        again = [trace_line(1000 + n, service=name) for n, name in enumerate(SERVICES)]
        place.produce(again)
        until(lambda: worker.traces() == good(lines) + len(again))
        notified = [dict(letter.headers) for letter in place.letters() if letter.value == b"{}"]
        assert [headers["topic"] for headers in notified] == [
            place.scores.encode()
        ] * place.partitions
        assert worker.stop() == 0, worker.log


def test_each_service_is_exported_by_exactly_one_worker(
    broker: KafkaServer, tmp_path: Path
) -> None:
    """Of two, of which each ends once, by SIGTERM and by SIGKILL."""
    place = Place(broker, tmp_path, partitions=4)
    lines = traffic(900)
    pair = one, other = [place.worker(name) for name in "ab"]

    def shared() -> bool:
        exported = [services(worker) for worker in pair]
        return all(exported) and sorted([*exported[0], *exported[1]]) == sorted(SERVICES)

    def counted(first: int, last: int) -> None:
        place.produce(lines[first:last])
        until(lambda: sum(worker.traces() for worker in pair) >= good(lines[:last]))

    with workers(*pair):
        until(lambda: all(worker.ready for worker in pair))
        counted(0, 300)
        assert shared()
        found = quality(one.metrics()) | quality(other.metrics())
        assert_same(found, embedded(tmp_path / "first", lines[:300]))
        assert one.stop() == 0, one.log
        until(lambda: services(other) == set(SERVICES))
        counted(300, 600)
        one.start()
        until(shared)
        other.kill()
        place.produce(lines[600:])
        until(lambda: one.traces() >= good(lines))
        assert services(one) == set(SERVICES)
        assert_same(quality(one.metrics()), embedded(tmp_path / "all", lines))


@pytest.mark.usefixtures("swept")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_waits_for_brokers_that_are_down_and_goes_on(place: Place, tmp_path: Path) -> None:
    lines = traffic(600)
    server = place.server
    worker = place.worker()
    try:
        server.stop()
        with workers(worker):
            until(lambda: "waiting, not ready" in worker.log)
            assert not worker.ready
            assert worker.get("/healthz") == "ok\n"
            assert "ragmeter_ready 0" in worker.get("/metrics")
            process = worker.process
            assert process is not None
            process.send_signal(signal.SIGHUP)
            until(lambda: "nothing has changed" in worker.log)
            began = time.monotonic()
            assert worker.stop() == 0, worker.log
            assert time.monotonic() - began < STOP_SECONDS

            said = worker.log.count("waiting, not ready")
            worker.start()
            process = worker.process
            assert process is not None
            until(lambda: worker.log.count("waiting, not ready") > said)
            server.start()
            until(lambda: worker.ready)
            place.produce(lines[:300])
            until(lambda: worker.traces() >= 50)
            server.restart(kill=True)
            place.produce(lines[300:])
            until(lambda: worker.traces() >= good(lines))
            assert_same(quality(worker.metrics()), embedded(tmp_path, lines))
            assert process.poll() is None, "it went on, and was not started again"
    finally:
        if server.nodes[0].pid is None:  # other tests need it
            server.start()
