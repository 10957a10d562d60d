"""Labels on a real Kafka: each is received once, and a stream of them that stands still is seen."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.kafka.cluster import Worker, workers
from tests.kafka.place import Place, page
from tests.traces import START, trace_line
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

STALL_SECONDS = 12.0  # a quarter of it, and the worker is not ready
IMPATIENT = {"limits": {"stalled_seconds": STALL_SECONDS}}
RECEIVED = 'ragmeter_feedback_received_total{source="kafka"}'
JOINED = 'ragmeter_feedback_total{outcome="joined"}'


def label(trace: str) -> bytes:
    item = {"trace_id": trace, "service": "bot", "timestamp": START + 10}
    return json.dumps({**item, "answer": {"helpful": True}}).encode()


def number(worker: Worker, name: str) -> float:
    return worker.metrics().get(name, 0.0)


def test_a_label_is_received_once_though_its_worker_is_killed(place: Place) -> None:
    feedback = place.settings.kafka.topics.feedback
    worker = place.worker()
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([trace_line(n) for n in range(20)])
        place.produce([label(f"t{n}") for n in range(20)], feedback)
        until(lambda: number(worker, JOINED) > 0)
        worker.kill()
        worker.start()
        until(lambda: number(worker, JOINED) == 20)
        assert number(worker, RECEIVED) == 20
        producer = Producer(
            {"bootstrap.servers": place.server.bootstrap, "transactional.id": feedback}
        )
        producer.init_transactions(20)
        for commit in (False, True):
            producer.begin_transaction()
            producer.produce(feedback, label("t1"), partition=0)
            producer.flush(20)
            (producer.commit_transaction if commit else producer.abort_transaction)(20)
        until(lambda: number(worker, RECEIVED) == 21)
        assert number(worker, 'ragmeter_feedback_total{outcome="repeated"}') == 1
        assert worker.stop() == 0, worker.log
        worker.start()
        until(lambda: worker.ready)
        assert number(worker, RECEIVED) == 21


def test_labels_that_stand_still_are_told_and_end_the_worker(place: Place) -> None:
    worker = place.worker(odd="stuck", settings=IMPATIENT)
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([label("stuck 1")], place.settings.kafka.topics.feedback)
        until(lambda: page(worker, "/readyz")[0] == 503)
        assert "nothing has moved for" in page(worker, "/readyz")[1]
        place.produce([trace_line(n) for n in range(20)])
        until(lambda: worker.traces() == 20)
        assert worker.process is not None
        assert worker.process.wait(PATIENCE) == 1
        log = "".join(map(str.strip, worker.log.splitlines()))  # broken at the end of a terminal
        assert "stalled; a restart goes on" in log
        assert place.settings.kafka.topics.feedback in log
