"""Workers on a real Kafka that meet what they should not: nothing is lost, and it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from tests.kafka.cluster import SERVICES, until, workers
from tests.kafka.odd_worker import STALL_SECONDS
from tests.kafka.place import PARTITIONS, START_SECONDS, Place, page
from tests.kafka_server import KafkaServer
from tests.traces import trace_line

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def place(broker: KafkaServer, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)


def lines(first: int, count: int) -> list[bytes]:
    numbers = range(first, first + count)
    return [trace_line(n, service=SERVICES[n % len(SERVICES)]) for n in numbers]


@contextmanager
def transactional(place: Place) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": place.server.bootstrap, "transactional.id": place.traces}
    )
    producer.init_transactions(20)
    yield producer


def transaction(
    place: Place, producer: Producer, bodies: list[bytes], *, commit: bool = True
) -> None:
    producer.begin_transaction()
    for number, body in enumerate(bodies):
        producer.produce(place.traces, body, partition=number % PARTITIONS)
    producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def test_transactions_leave_holes_that_end_nobody(place: Place) -> None:
    worker = place.worker(odd="impatient")
    with workers(worker), transactional(place) as producer:
        until(lambda: worker.ready, START_SECONDS)
        for turn in range(5):
            transaction(place, producer, lines(turn * 20, 4))
            transaction(place, producer, lines(1000 + turn * 20, 4), commit=False)
            place.produce(lines(turn * 20 + 4, 3))
        until(lambda: worker.traces() == 5 * 7)
        # a mark is the end of the log, and an open transaction holds back what is behind it
        producer.begin_transaction()
        producer.produce(place.traces, trace_line(5000), partition=0)
        producer.flush(20)
        time.sleep(STALL_SECONDS + 2)
        assert worker.ready, worker.log
        assert worker.traces() == 5 * 7
        producer.commit_transaction(20)
        until(lambda: worker.traces() == 5 * 7 + 1)
        assert worker.stop() == 0, worker.log
        # and again, beginning at what was committed: before the marks
        worker.start()
        until(lambda: worker.traces() == 5 * 7 + 1)
        time.sleep(STALL_SECONDS + 2)
        assert worker.ready, worker.log
        transaction(place, producer, lines(200, 4))
        until(lambda: worker.traces() == 5 * 7 + 5)
        assert worker.stop() == 0, worker.log


def test_a_record_that_the_state_cannot_take_is_given_up_alone(place: Place) -> None:
    worker = place.worker(odd="raises")
    bodies = [*lines(0, 20), trace_line(0, trace_id="poison 1"), *lines(20, 20)]
    with workers(worker):
        until(lambda: worker.ready, START_SECONDS)
        place.produce(bodies)
        until(lambda: worker.traces() == 40)
        found = worker.metrics()
        assert found['ragmeter_dead_letters_total{reason="internal_error"}'] == 1
        (letter,) = place.letters()
        headers = dict(letter.headers)
        assert headers["reason"] == b"internal_error"
        assert headers["topic"] == place.scores.encode()
        assert b"poison 1" in letter.value
        assert b"ZeroDivisionError" in headers["error"]
        # what was given up is not tried again, and the state is what the others made
        worker.kill()
        worker.start()
        until(lambda: worker.traces() == 40)
        place.produce(lines(40, 4))
        until(lambda: worker.traces() == 44)
        assert len(place.letters()) == 1
        assert worker.metrics()['ragmeter_dead_letters_total{reason="internal_error"}'] == 1


def test_what_is_too_large_is_a_dead_letter(place: Place) -> None:
    dead = ConfigResource(
        "topic", place.settings.kafka.topics.dead, {"max.message.bytes": "300000"}
    )
    admin = KafkaAdminClient(bootstrap_servers=place.server.bootstrap)
    admin.alter_configs([dead])
    admin.close()
    # the first is too large for the broker, the second for the client itself
    fat = [trace_line(7, trace_id="fat1500000"), trace_line(8, trace_id="fat3000000")]
    # and these bytes cannot even be buried
    large = b"{" + b"x" * 400_000
    worker = place.worker(odd="fat")
    with workers(worker):
        until(lambda: worker.ready, START_SECONDS)
        place.produce([*lines(0, 6), *fat, large, *lines(10, 6)])
        until(lambda: worker.traces() == 12)
        until(lambda: len(place.letters()) == 3)
        letters = sorted(place.letters(), key=lambda letter: letter.value)
        assert [letter.value for letter in letters] == [b"", *fat]
        told = [dict(letter.headers) for letter in letters]
        assert [headers["reason"] for headers in told[1:]] == [b"too_large"] * 2
        assert told[0]["truncated"] == b"1"
        assert (told[0]["topic"], told[0]["partition"]) == (place.traces.encode(), b"0")
        assert worker.metrics()['ragmeter_dead_letters_total{reason="too_large"}'] == 2
        assert worker.ready
        assert worker.stop() == 0, worker.log


def test_a_worker_that_stands_still_says_so_and_ends(place: Place) -> None:
    worker = place.worker(odd="impatient,paused")
    with workers(worker):
        until(lambda: worker.ready, START_SECONDS)
        place.produce(lines(0, 2))
        until(lambda: worker.traces() >= 1)
        place.produce(lines(10, 40))
        until(lambda: page(worker, "/readyz")[0] == 503)
        assert "nothing has moved for" in page(worker, "/readyz")[1]
        assert worker.process is not None
        assert worker.process.wait(30) == 1
        assert worker.log.count("stalled; a restart goes on") == 1
        told = worker.log[worker.log.index("{", worker.log.index("stalled; a restart")) :]
        # the log is broken into lines of a terminal
        seen, _ = json.JSONDecoder().raw_decode("".join(map(str.strip, told.splitlines())))
        assert {f"{place.traces}/{number}" for number in range(PARTITIONS)} <= {*seen["paused"]}
        assert seen["generation"] > 0
    # whoever restarts it has it all
    sound = place.worker("b")
    with workers(sound):
        until(lambda: sound.traces() == 42, START_SECONDS)


SECURITY = {
    "sasl_ssl": {"protocol": "SASL_SSL", "ca_file": "ca.pem"},
    "ssl": {
        "protocol": "SSL",
        "ca_file": "ca.pem",
        "cert_file": "client.pem",
        "key_file": "client.key",
    },
}


@pytest.mark.parametrize("listener", SECURITY)
def test_a_worker_with_credentials(place: Place, listener: str) -> None:
    from tests.kafka_security import PASSWORD, USER

    block = {
        key: str(place.server.folder / value) if key.endswith("_file") else value
        for key, value in SECURITY[listener].items()
    }
    if listener == "sasl_ssl":
        block |= {"username": USER, "password": PASSWORD}
    worker = place.worker(bootstrap_servers=[getattr(place.server, listener)], security=block)
    with workers(worker):
        until(lambda: worker.ready, START_SECONDS)
        place.produce([*lines(0, 10), b"{"])
        until(lambda: worker.traces() == 10)
        assert len(place.letters()) == 1
        assert PASSWORD not in worker.log
        assert worker.stop() == 0, worker.log


def test_topics_may_be_made_after_the_worker_was_started(
    broker: KafkaServer, tmp_path: Path
) -> None:
    place = Place(broker, tmp_path, made=False)
    worker = place.worker()
    with workers(worker):
        until(lambda: "next try in" in worker.log)
        status, text = page(worker, "/readyz")
        assert status == 503
        for words in ("there is no topic", place.traces, place.scores, "`ragmeter kafka init`"):
            assert words in text
        assert page(worker, "/healthz") == (200, "ok\n")
        place.make()
        until(lambda: worker.ready, START_SECONDS)
        place.produce(lines(0, 4))
        until(lambda: worker.traces() == 4)
        assert worker.stop() == 0, worker.log


def test_another_number_of_partitions_is_said(place: Place) -> None:
    worker = place.worker(partitions=PARTITIONS + 1)
    with workers(worker):
        until(lambda: page(worker, "/readyz")[0] == 503 and "partitions" in worker.log)
        said = f"{place.scores} has {PARTITIONS} partitions"
        assert said in page(worker, "/readyz")[1]
        assert worker.stop() == 0, worker.log
