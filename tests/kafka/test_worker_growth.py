"""Topics that grow while traces come: workers are ready within a minute, and each trace counts
once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from ragmeter.app.parts import PARTS
from ragmeter.cli.kafka import kafka_app
from ragmeter.kafka.operator.administration import read_lag
from ragmeter.kafka.operator.clients import guarded
from typer.testing import CliRunner

from tests.kafka.cluster import SERVICES, Worker, workers
from tests.kafka.place import PARTITIONS, Place
from tests.traces import trace_line
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

GROWN = PARTITIONS + 3
RATE = 100.0  # traces a second
READY_SECONDS = 60.0
DUPLICATES = 'ragmeter_traces_duplicate_total{source="kafka"}'


class Load:
    """Traces that go to all partitions of a topic; `sent` are those acknowledged."""

    def __init__(self, place: Place) -> None:
        self.sent = 0
        self._done = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=place.server.bootstrap,
            acks="all",
            enable_idempotence=True,
            metadata_max_age_ms=1000,  # it sees new partitions soon
        )
        self._topic = place.traces
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._done.wait(1 / RATE):
                break
            line = trace_line(number, service=SERVICES[number % len(SERVICES)])
            self._producer.send(self._topic, line).add_callback(self._acknowledged)
        self._producer.flush(60)

    def _acknowledged(self, _: object) -> None:
        self.sent += 1

    def end(self) -> int:
        """Return how many were sent in all."""
        self._done.set()
        self._thread.join()
        self._producer.close(timeout=PATIENCE)
        return self.sent


@contextmanager
def load(place: Place) -> Iterator[Load]:
    one = Load(place)
    try:
        yield one
    finally:
        one.end()


def counted(all_: Sequence[Worker]) -> float:
    return sum(worker.traces() for worker in all_)


def assert_counted_once(all_: Sequence[Worker], sent: int) -> None:
    until(lambda: counted(all_) >= sent)
    time.sleep(2)
    # for a moment after a service has moved two workers show it
    until(lambda: counted(all_) == sent)
    assert sum(worker.metrics().get(DUPLICATES, 0) for worker in all_) == 0


def read_partitions(place: Place) -> set[int]:
    """The partitions of the traces of which the workers have committed something."""
    with guarded(place.settings.kafka):
        rows = read_lag(place.settings, PARTS)
    return {row.partition for row in rows if row.topic == place.traces and row.committed}


def test_the_topic_of_the_traces_grows_under_load(place: Place) -> None:
    pair = [place.worker(name) for name in "ab"]
    with workers(*pair):
        until(lambda: all(worker.ready for worker in pair))
        with load(place) as traffic:
            until(lambda: counted(pair) > 300)
            with KafkaAdminClient(bootstrap_servers=place.server.bootstrap) as admin:
                admin.create_partitions({place.traces: GROWN})
            grown = time.monotonic()
            notified = CliRunner().invoke(kafka_app, ["init", "-c", str(place.folder / "a.json")])
            assert notified.exit_code == 0, notified.output
            until(lambda: read_partitions(place) == set(range(GROWN)))
            until(lambda: all(worker.ready for worker in pair))
            assert time.monotonic() - grown < READY_SECONDS
            sent = traffic.end()
        assert_counted_once(pair, sent)
        assert [worker.stop() for worker in pair] == [0, 0]


@pytest.mark.long
def test_the_topic_of_the_scores_grows_as_documented(place: Place) -> None:
    """Traces come all the while; what was counted before is counted again from their topic."""
    old = [place.worker(name) for name in "ab"]
    with load(place) as traffic:
        with workers(*old):
            until(lambda: counted(old) > 300)
            assert [worker.stop() for worker in old] == [0, 0]
        names = place.kafka["topics"]["prefix"]
        grown: dict[str, Any] = {
            "partitions": GROWN,
            "group": f"{place.kafka['group']}-2",
            "topics": {
                "prefix": f"{names}2.",
                "traces": f"{names}traces",
                "feedback": f"{names}feedback",
            },
        }
        new = [place.worker(f"{name}2", **grown) for name in "ab"]
        config = str(place.folder / "a2.json")
        made = CliRunner().invoke(kafka_app, ["init", "--apply", "-c", config])
        assert made.exit_code == 0, made.output
        with workers(*new):
            begun = time.monotonic()
            until(lambda: all(worker.ready for worker in new))
            assert time.monotonic() - begun < READY_SECONDS
            sent = traffic.end()
            assert_counted_once(new, sent)
            services = {name for worker in new for name in worker.metrics() if "service=" in name}
            assert all(any(f'service="{name}"' in one for one in services) for name in SERVICES)
            assert [worker.stop() for worker in new] == [0, 0]
