"""What the halves tell each other on a real Kafka: what is rare is drawn more often by whoever
scores it, and the worst traces are shown with their texts by whoever counts them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from agent.config import Settings
from agent.kafka.background.evidence_fetch import TopicReader
from agent.kafka.messages.records import decode_record
from agent.trace import Score, State
from tests.judge.stub_process import stub_judge
from tests.kafka.cluster import (
    PARTITIONS,
    SETTINGS,
    Worker,
    make_topics,
    produce,
    until,
    workers,
)
from tests.kafka_server import KafkaServer, kafka_server
from tests.test_privacy import MAIL
from tests.traces import START, trace_line

HOUR = 3600


def line(number: int, tenant: str, at: float, **changes: Any) -> bytes:
    tags = {"tenant": tenant}
    return trace_line(number, tags=tags, timestamp=START + at, **changes)


def judged(server: KafkaServer) -> dict[str, Score]:
    """A result of the judge for each trace in the topic of the scores."""
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=2000)
    consumer.assign([TopicPartition("rag.scores", n) for n in range(PARTITIONS)])
    consumer.seek_to_beginning()
    scored = [decode_record(message.value).scored for message in consumer]
    consumer.close()
    return {
        one.trace_id: score
        for one in scored
        for score in one.results
        if (score.metric, score.scorer) == ("answered", "judge")
    }


def controls(server: KafkaServer) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=1500)
    consumer.assign([TopicPartition("rag.control", n) for n in range(PARTITIONS)])
    consumer.seek_to_beginning()
    found = [message.value for message in consumer]
    consumer.close()
    return found


def counted(pair: Sequence[Worker]) -> float:
    return sum(worker.traces() for worker in pair)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_halves_tell_each_other(tmp_path: Path) -> None:
    with kafka_server(tmp_path / "kafka") as server, stub_judge() as stub:
        make_topics(server)
        tree = {
            **SETTINGS,
            "segments": ["tenant"],
            "sampling": {"judge": 0.15},
            "privacy": {"redact": ["email"]},
            "judge": {
                "base_url": stub.base_url,
                "model": "stub",
                "metrics": ["answered"],
                "concurrency": 64,
                "probes": {"enabled": False},
            },
        }
        pair = [Worker(server, tmp_path, name, settings=tree) for name in "ab"]
        with workers(*pair):
            until(lambda: all(worker.ready for worker in pair), 120)
            learn_what_is_rare(server, pair)
            show_the_worst(server, pair)
        read_what_is_there(server)


def learn_what_is_rare(server: KafkaServer, pair: Sequence[Worker]) -> None:
    produce(server, [b"garbage", b"{}"], topic="rag.control")
    hour = [line(n, "small" if n % 100 == 0 else "big", 6 * n) for n in range(610)]
    produce(server, hour[:600])
    until(lambda: counted(pair) >= 600)  # partitions come in no order of time
    produce(server, hour[600:])
    until(lambda: counted(pair) >= len(hour))
    until(lambda: any(b'"tenant=small"' in value for value in controls(server)))
    before = judged(server)
    assert {score.stratum.partition(":")[0] for score in before.values()} == {"rest"}
    # any worker scores these, and both must know by now
    more = [line(1000 + n, "small" if n % 2 else "big", HOUR + 100 + n) for n in range(600)]
    produce(server, more)
    until(lambda: counted(pair) >= len(hour) + len(more))
    after = {name: score for name, score in judged(server).items() if name not in before}
    small = [score for name, score in after.items() if int(name[1:]) % 2]
    big = [score for name, score in after.items() if not int(name[1:]) % 2]
    assert {score.stratum.partition(":")[0] for score in small} == {"rare"}
    assert {score.stratum.partition(":")[0] for score in big} == {"rest"}
    drawn = [sum(score.state is not State.SAMPLED_OUT for score in part) for part in (small, big)]
    assert drawn[0] > 2 * drawn[1] > 0, drawn


def show_the_worst(server: KafkaServer, pair: Sequence[Worker]) -> None:
    answer = "It costs 99 euros [7]."
    query = f"Who is {MAIL}?"
    worst = [
        line(5000 + n, "big", 3 * HOUR + n, service="shop", answer=answer, query=query)
        for n in range(5)
    ]
    produce(server, worst)
    path = "/trace/shop/t5003"
    until(lambda: any("[email]" in worker.get(path) for worker in pair), 90)
    (owner,) = [worker for worker in pair if worker.get(path)]
    other = next(worker for worker in pair if worker is not owner)
    shown = owner.get(path)
    assert "99 euros" in shown
    assert MAIL not in shown
    # durable: the next owner has it although it cannot be read any more
    produce(server, [line(5100, "big", 3 * HOUR + 60, service="shop")])
    time.sleep(3)  # a step is a second away at most
    assert owner.stop() == 0, owner.log
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.delete_records({TopicPartition("rag.traces", n): -1 for n in range(PARTITIONS)})
    admin.close()
    until(lambda: other.get(path), 90)
    assert "[email]" in other.get(path)
    assert MAIL not in other.get(path)


def read_what_is_there(server: KafkaServer) -> None:
    """After all before was deleted."""
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": [server.bootstrap]}})
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap)
    end = consumer.end_offsets([TopicPartition("rag.traces", 0)])[TopicPartition("rag.traces", 0)]
    consumer.close()
    assert end > 10
    produce(server, [b"one", b"-", b"-", b"-", b"two"])  # to the partitions in turn

    async def read() -> list[bytes | None]:
        reader = TopicReader(settings.kafka, "rag.traces", seconds=2)
        try:
            places = [
                (0, end + 1),
                (0, end),
                (0, 0),
                (0, end + 2),
                (0, end + 99),
                (77, 0),
                (0, end),
            ]
            return [await reader.read(*place) for place in places]
        finally:
            await reader.close()

    assert asyncio.run(read()) == [b"two", b"one", None, None, None, None, b"one"]
