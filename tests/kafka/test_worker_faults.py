"""Workers on a real Kafka that meet what they should not: nothing is lost, and it is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource
from pytest_httpserver import HTTPServer
from ragmeter.cli.kafka import kafka_app
from ragmeter.kafka.topics import state_topic
from typer.testing import CliRunner

from tests.kafka.cluster import SERVICES, workers
from tests.kafka.place import PARTITIONS, Place, page
from tests.kafka_security import PASSWORD, USER, make_token
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

STALL_SECONDS = 12.0  # a quarter of it, and the worker is not ready
IMPATIENT = {"limits": {"stalled_seconds": STALL_SECONDS}}


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
    worker = place.worker(settings=IMPATIENT)
    with workers(worker), transactional(place) as producer:
        until(lambda: worker.ready)
        for turn in range(5):
            transaction(place, producer, lines(turn * 20, 4))
            transaction(place, producer, lines(1000 + turn * 20, 4), commit=False)
            place.produce(lines(turn * 20 + 4, 3))
        until(lambda: worker.traces() == 5 * 7)
        assert worker.stop() == 0, worker.log
        # and again, beginning at what was committed: before the marks. A mark is the end of the
        # log, and an open transaction holds back what is behind it
        worker.start()
        until(lambda: worker.traces() == 5 * 7)
        producer.begin_transaction()
        producer.produce(place.traces, trace_line(5000), partition=0)
        producer.flush(20)
        time.sleep(STALL_SECONDS + 2)
        assert worker.ready, worker.log
        assert worker.traces() == 5 * 7
        producer.commit_transaction(20)
        until(lambda: worker.traces() == 5 * 7 + 1)
        transaction(place, producer, lines(200, 4))
        until(lambda: worker.traces() == 5 * 7 + 5)
        assert worker.stop() == 0, worker.log


def test_what_cannot_be_counted_is_a_dead_letter_and_holds_up_nothing(place: Place) -> None:
    """One record that the state cannot take, one that is too large for the broker and one for the
    client itself, and a message that is too large even to be buried."""
    dead = ConfigResource(
        "topic", place.settings.kafka.topics.dead, {"max.message.bytes": "300000"}
    )
    admin = KafkaAdminClient(bootstrap_servers=place.server.bootstrap)
    admin.alter_configs([dead])
    admin.close()
    fat = [trace_line(7, trace_id="fat1500000"), trace_line(8, trace_id="fat3000000")]
    large = b"{" + b"x" * 400_000
    poison = trace_line(0, trace_id="poison 1")
    worker = place.worker(odd="raises,fat")
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([*lines(0, 20), poison, *fat, large, *lines(20, 20)])
        until(lambda: worker.traces() == 40)
        until(lambda: len(place.letters()) == 4)
        letters = {letter.value: dict(letter.headers) for letter in place.letters()}
        assert {*fat, b""} < letters.keys()
        assert [letters[one]["reason"] for one in fat] == [b"too_large"] * 2
        assert (letters[b""]["truncated"], letters[b""]["topic"]) == (b"1", place.traces.encode())
        (failed,) = letters.keys() - {*fat, b""}
        assert b"poison 1" in failed
        assert letters[failed]["topic"] == place.scores.encode()
        assert letters[failed]["reason"] == b"internal_error"
        assert b"ZeroDivisionError" in letters[failed]["error"]
        found = worker.metrics()
        assert found['ragmeter_dead_letters_total{reason="too_large"}'] == 2
        assert found['ragmeter_dead_letters_total{reason="internal_error"}'] == 1
        assert worker.ready
        # what was given up is not tried again, and the state is what the others made
        worker.kill()
        worker.start()
        until(lambda: worker.traces() == 40)
        place.produce(lines(40, 4))
        until(lambda: worker.traces() == 44)
        assert len(place.letters()) == 4
        assert worker.metrics()['ragmeter_dead_letters_total{reason="internal_error"}'] == 1


def test_a_worker_that_stands_still_says_so_and_ends(place: Place) -> None:
    worker = place.worker(odd="paused", settings=IMPATIENT)
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines(0, 2))
        until(lambda: worker.traces() >= 1)
        place.produce(lines(10, 40))
        until(lambda: page(worker, "/readyz")[0] == 503)
        assert "nothing has moved for" in page(worker, "/readyz")[1]
        assert worker.process is not None
        assert worker.process.wait(PATIENCE) == 1
        assert worker.log.count("stalled; a restart goes on") == 1
        log = "".join(map(str.strip, worker.log.splitlines()))  # broken at the end of a terminal
        assert f"{place.traces}/0" in log[log.index("stalled; a restart") :]
    # whoever restarts it has it all
    sound = place.worker("b")
    with workers(sound):
        until(lambda: sound.traces() == 42)


def test_workers_with_credentials(place: Place, httpserver: HTTPServer) -> None:
    """One with a password, one with a certificate, one with a token, in one group."""
    folder = place.server.folder
    ca = {"ca_file": str(folder / "ca.pem")}
    certificate = {
        "cert_file": str(folder / "client.pem"),
        "key_file": str(folder / "client.key"),
    }
    word = {"username": USER, "password": PASSWORD}
    httpserver.expect_request("/token").respond_with_json(
        {"access_token": make_token(), "expires_in": 600}
    )
    token = {
        "mechanism": "OAUTHBEARER",
        "oauth": {
            "token_url": httpserver.url_for("/token"),
            "client_id": USER,
            "client_secret": PASSWORD,
        },
    }
    group = [
        place.worker(
            name, bootstrap_servers=[address], security={"protocol": protocol, **ca, **block}
        )
        for name, protocol, address, block in (
            ("a", "SASL_SSL", place.server.sasl_ssl, word),
            ("b", "SSL", place.server.ssl, certificate),
            ("c", "SASL_SSL", place.server.sasl_ssl, token),
        )
    ]
    with workers(*group):
        until(lambda: all(worker.ready for worker in group))
        place.produce([*lines(0, 20), b"{"])
        until(lambda: sum(worker.traces() for worker in group) == 20)
        received = 'ragmeter_traces_received_total{source="kafka"}'
        # of three members one has no partition
        assert sum(bool(worker.metrics().get(received)) for worker in group) == place.partitions
        assert len(place.letters()) == 1
        assert not any(PASSWORD in worker.log for worker in group)
        assert len(httpserver.log) == 1, "all clients of a worker share a token"
        assert [worker.stop() for worker in group] == [0, 0, 0]


def test_topics_may_be_made_after_the_worker_was_started(
    broker: KafkaServer, tmp_path: Path
) -> None:
    place = Place(broker, tmp_path, made=False)
    worker = place.worker()
    with workers(worker):
        until(lambda: "waiting, not ready" in worker.log)
        status, text = page(worker, "/readyz")
        assert status == 503
        for words in ("there is no topic", place.traces, place.scores, "`ragmeter kafka init`"):
            assert words in text
        assert page(worker, "/healthz") == (200, "ok\n")
        place.make()
        until(lambda: worker.ready)
        place.produce(lines(0, 4))
        until(lambda: worker.traces() == 4)
        assert worker.stop() == 0, worker.log


def test_an_offset_beyond_the_end_costs_no_trace(place: Place) -> None:
    """The brokers have lost the end of the topic, say: what comes then lies before the offset."""
    worker = place.worker()
    group = place.settings.kafka.score_group
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines(0, 60))
        until(lambda: worker.traces() == 60)
        assert worker.stop() == 0, worker.log
        beyond = [TopicPartition(place.traces, number, 5000) for number in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": place.server.bootstrap})
        moved = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, beyond)])
        moved[group].result(PATIENCE)
        shown = CliRunner().invoke(kafka_app, ["lag", "-c", str(place.folder / "a.json")])
        assert "beyond the end of the topic" in shown.output
        place.produce(lines(60, 230))
        worker.start()
        until(lambda: worker.traces() == 290)
        assert "is committed, but the topic ends at" in worker.log
        assert worker.metrics()['ragmeter_traces_duplicate_total{source="kafka"}'] == 60
        assert worker.stop() == 0, worker.log


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(place: Place, codec: str) -> None:
    worker = place.worker()
    config = str(place.folder / "a.json")
    with workers(worker):
        until(lambda: worker.ready)
        producer = Producer(
            {"bootstrap.servers": place.server.bootstrap, "compression.type": codec}
        )
        for line in lines(0, 40):
            producer.produce(place.traces, line)
        producer.flush(20)
        until(lambda: worker.traces() == 40)
        assert worker.stop() == 0, worker.log
    # the commands read by another client, which has packages of its own
    for line in lines(40, 3):
        producer.produce(place.traces, line)
    producer.flush(20)
    for command in (["lag"], ["lag", "--all"]):
        shown = CliRunner().invoke(kafka_app, [*command, "-c", config])
        assert shown.exit_code == 0, shown.output
        assert "3 records wait" in shown.output


def test_a_batch_that_cannot_be_read_is_named_and_stops_no_other_partition(place: Place) -> None:
    worker = place.worker(odd="no_lz4", settings=IMPATIENT)
    with workers(worker):
        until(lambda: worker.ready)
        broken, sound = (
            Producer({"bootstrap.servers": place.server.bootstrap, "compression.type": codec})
            for codec in ("lz4", "none")
        )
        for line in lines(0, 10):
            broken.produce(place.traces, line, partition=0)
        broken.flush(20)
        until(lambda: f"{place.traces}/0 cannot be read" in page(worker, "/readyz")[1])
        assert "lz4" in page(worker, "/readyz")[1]
        for line in lines(10, 10):
            sound.produce(place.traces, line, partition=1)
        sound.flush(20)
        until(lambda: worker.traces() == 10)
        lag = f'ragmeter_kafka_lag_messages{{topic="{place.traces}"}}'
        until(lambda: worker.metrics().get(lag) == 10)
        assert worker.process is not None
        assert worker.process.wait(PATIENCE) == 1, "it stands still for too long"
        assert f"{place.traces}/0 cannot be read from 0 on" in worker.log


def test_a_state_that_is_lost_is_refused_and_counted_anew(place: Place) -> None:
    worker = place.worker()
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([*lines(0, 40), lines(0, 1)[0]])
        until(lambda: worker.traces() == 40)
        config = str(place.folder / "a.json")
        refused = CliRunner().invoke(kafka_app, ["rebuild", "-c", config])
        assert refused.exit_code == 1
        assert "running workers: 1; stop them first" in refused.output
        assert worker.stop() == 0, worker.log
    state = state_topic(place.settings)
    with KafkaAdminClient(bootstrap_servers=place.server.bootstrap) as admin:
        admin.delete_topics([state])
    until(lambda: state not in place.topics())
    place.make()
    worker.start()
    assert worker.process is not None
    try:
        assert worker.process.wait(PATIENCE) == 1
        log = " ".join(map(str.strip, worker.log.splitlines()))
        assert "is counted up to" in log
        assert "ragmeter kafka rebuild" in log
        # what is left of a state is no state either
        done = CliRunner().invoke(kafka_app, ["rebuild", "-c", config])
        assert done.exit_code == 0, done.output
        worker.start()
        until(lambda: worker.traces() == 40)
        duplicates = 'ragmeter_traces_duplicate_total{source="kafka"}'
        assert worker.metrics()[duplicates] == 1
        assert worker.stop() == 0, worker.log
    finally:
        if worker.process.poll() is None:
            worker.kill()


@pytest.mark.long
def test_workers_outlive_an_outage_and_topics_grow_meanwhile(place: Place) -> None:
    """The brokers are away for longer than a worker may stand still: nobody ends."""
    topics = place.settings.kafka.topics
    pair = [place.worker(name, settings=IMPATIENT) for name in "ab"]
    with workers(*pair):
        until(lambda: all(worker.ready for worker in pair))
        place.produce(lines(0, 40))
        until(lambda: sum(worker.traces() for worker in pair) == 40)
        place.server.stop()
        began = time.monotonic()
        try:
            until(lambda: all("brokers have not" in page(one, "/readyz")[1] for one in pair))
            time.sleep(max(0.0, STALL_SECONDS + 3 - (time.monotonic() - began)))
            assert [page(worker, "/healthz")[0] for worker in pair] == [200, 200]
            assert sum(worker.traces() for worker in pair) == 40
        finally:
            place.server.start()
        place.produce(lines(100, 10))
        until(lambda: sum(worker.traces() for worker in pair) == 50)
        until(lambda: all(worker.ready for worker in pair))
        with KafkaAdminClient(bootstrap_servers=place.server.bootstrap) as admin:
            admin.create_partitions({place.traces: PARTITIONS + 1, topics.feedback: PARTITIONS + 1})
        same = CliRunner().invoke(kafka_app, ["init", "-c", str(place.folder / "a.json")])
        assert same.exit_code == 0, same.output
        assert [worker.stop() for worker in pair] == [0, 0]
        for worker in pair:
            worker.start()
        until(lambda: all(worker.ready for worker in pair))
        place.produce(lines(200, 9))
        until(lambda: sum(worker.traces() for worker in pair) == 59)


def test_a_worker_says_how_far_it_is_behind(place: Place) -> None:
    worker = place.worker(odd="slow", in_flight=2)
    lag = f'ragmeter_kafka_lag_messages{{topic="{place.traces}"}}'
    seconds = f'ragmeter_kafka_lag_seconds{{topic="{place.traces}"}}'
    with workers(worker):
        until(lambda: worker.ready)
        place.produce(lines(0, 40))
        until(lambda: worker.metrics().get(lag, 0) >= 10)
        assert worker.metrics()[seconds] > 0
        until(lambda: worker.traces() == 40)
        until(lambda: worker.metrics()[lag] == 0)
        assert worker.metrics()[seconds] == 0
        # the mark of a transaction is no message that waits
        scores = f'ragmeter_kafka_lag_messages{{topic="{place.scores}"}}'
        until(lambda: worker.metrics()[scores] == 0)
