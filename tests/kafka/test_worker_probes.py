"""Two workers on a real Kafka: the probes of the judge are paid for once, and baselines are
promoted where the service is counted."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ragmeter.scorers.judge.probes import load_probes

from tests.kafka.cluster import SERVICES, Worker, workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.scorers.judge.stub_process import StubProcess, stub_judge
from tests.traces import START, trace_line
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

TREE: dict[str, Any] = {
    "drift": {"enabled": True},
    "windows": ["5m", "24h"],
    "sampling": {"judge": 1e-9},  # only probes are asked
}


def promote(worker: Worker, service: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{worker.port}/v1/baselines/promote",
        json.dumps({"service": service}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def asked(pair: Sequence[Worker]) -> float:
    found = [worker.metrics() for worker in pair]
    name = 'ragmeter_judge_requests_total{judge="judge",outcome="ok"}'
    return sum(metrics.get(name, 0.0) for metrics in found)


def test_probes_are_asked_once_and_baselines_promoted_by_who_counts(
    broker: KafkaServer, tmp_path: Path
) -> None:
    place = Place(broker, tmp_path, partitions=4)
    with stub_judge() as stub:
        judge = {"base_url": stub.base_url, "model": "stub", "metrics": ["answered"]}
        pair = [place.worker(name, settings={**TREE, "judge": judge}) for name in "ab"]
        with workers(*pair):
            until(lambda: all(worker.ready for worker in pair))
            watch(place, pair)
            promote_where_it_is_counted(pair)
            pay_for_probes_once(stub, pair)


def watch(place: Place, pair: Sequence[Worker]) -> None:
    """Eight hours of traffic, in order: partitions come in no order of time."""
    for hour in range(8):
        numbers = range(hour * 60, hour * 60 + 60)
        lines = [
            trace_line(n, service=SERVICES[n % 5], timestamp=START + 60.0 * n) for n in numbers
        ]
        place.produce(lines)
        until(lambda end=numbers.stop: sum(w.traces() for w in pair) >= end)  # type: ignore[misc]


def promote_where_it_is_counted(pair: Sequence[Worker]) -> None:
    for service in SERVICES:
        replies = [promote(worker, service) for worker in pair]
        statuses = sorted(status for status, _ in replies)
        assert statuses == [200, 404], replies
        for status, reply in replies:
            if status == 200:
                assert set(reply["services"]) == {service}
            else:
                assert "ask the other workers" in reply["error"]
                assert service not in reply["error"].partition("here, but")[2]


def pay_for_probes_once(stub: StubProcess, pair: Sequence[Worker]) -> None:
    whole = len(load_probes().probes)
    until(lambda: asked(pair) >= whole)
    time.sleep(12)  # two looks of each worker
    assert asked(pair) == whole
    shown = [worker for worker in pair if 'service="_judge"' in worker.exposition()]
    assert len(shown) == 1
    (owner,) = shown
    other = next(worker for worker in pair if worker is not owner)
    before = stub.stats()
    assert owner.stop() == 0, owner.log
    until(lambda: 'service="_judge"' in other.exposition())
    time.sleep(12)
    assert stub.stats() == before, "the next owner has paid for them again"
