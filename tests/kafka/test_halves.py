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
from ragmeter.core.score import Score, ScoreState
from ragmeter.kafka.evidence_fetcher import TraceTopicReader
from ragmeter.kafka.score_records import decode_scores

from tests.embedded.test_privacy import MAIL
from tests.kafka.cluster import Worker, workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.scorers.judge.stub_process import stub_judge
from tests.traces import START, trace_line
from tests.waiting import until

HOUR = 3600


def line(number: int, tenant: str, at: float, **changes: Any) -> bytes:
    tags = {"tenant": tenant}
    return trace_line(number, tags=tags, timestamp=START + at, **changes)


def judged(place: Place) -> dict[str, Score]:
    """A result of the judge for each trace in the topic of the scores."""
    scored = [
        one.scored for record in place.records(place.scores) for one in decode_scores(record.value)
    ]
    return {
        one.trace_id: score
        for one in scored
        for score in one.results
        if (score.metric, score.scorer) == ("answered", "judge")
    }


def counted(pair: Sequence[Worker]) -> float:
    return sum(worker.traces() for worker in pair)


@pytest.mark.real
@pytest.mark.slow
def test_the_halves_tell_each_other(broker: KafkaServer, tmp_path: Path) -> None:
    place = Place(broker, tmp_path, partitions=4)
    with stub_judge() as stub:
        tree = {
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
        pair = [place.worker(name, settings=tree) for name in "ab"]
        with workers(*pair):
            until(lambda: all(worker.ready for worker in pair))
            learn_what_is_rare(place, pair)
            show_the_worst(place, pair)
        read_what_is_there(place)


def learn_what_is_rare(place: Place, pair: Sequence[Worker]) -> None:
    control = place.settings.kafka.topics.control
    place.produce([b"garbage", b"{}"], control)
    hour = [line(n, "small" if n % 100 == 0 else "big", 6 * n) for n in range(600)]
    place.produce(hour)
    until(lambda: counted(pair) >= len(hour))
    # an hour after whichever of them was counted first: those that are judged come later
    place.produce([line(600 + n, "big", 2 * HOUR + n) for n in range(10)])
    until(lambda: counted(pair) >= len(hour) + 10)
    until(lambda: any(b'"tenant=small"' in one.value for one in place.records(control)))
    before = judged(place)
    assert {score.stratum.partition(":")[0] for score in before.values()} == {"rest"}
    # any worker scores these, and both must know by now
    more = [line(1000 + n, "small" if n % 2 else "big", 2 * HOUR + 100 + n) for n in range(600)]
    place.produce(more)
    until(lambda: counted(pair) >= len(hour) + 10 + len(more))
    after = {name: score for name, score in judged(place).items() if name not in before}
    small = [score for name, score in after.items() if int(name[1:]) % 2]
    big = [score for name, score in after.items() if not int(name[1:]) % 2]
    assert {score.stratum.partition(":")[0] for score in small} == {"rare"}
    assert {score.stratum.partition(":")[0] for score in big} == {"rest"}
    drawn = [
        sum(score.state is not ScoreState.SAMPLED_OUT for score in part) for part in (small, big)
    ]
    assert drawn[0] > 2 * drawn[1] > 0, drawn


def show_the_worst(place: Place, pair: Sequence[Worker]) -> None:
    answer = "It costs 99 euros [7]."
    query = f"Who is {MAIL}?"
    worst = [
        line(5000 + n, "big", 3 * HOUR + n, service="shop", answer=answer, query=query)
        for n in range(5)
    ]
    place.produce(worst)
    path = "/trace/shop/t5003"
    until(lambda: any("[email]" in worker.get(path) for worker in pair))
    (owner,) = [worker for worker in pair if worker.get(path)]
    other = next(worker for worker in pair if worker is not owner)
    shown = owner.get(path)
    assert "99 euros" in shown
    assert MAIL not in shown
    # durable: the next owner has it although it cannot be read any more
    place.produce([line(5100, "big", 3 * HOUR + 60, service="shop")])
    time.sleep(2)  # it is read again within a second, and written at the end
    assert owner.stop() == 0, owner.log
    admin = KafkaAdminClient(bootstrap_servers=place.server.bootstrap)
    admin.delete_records({TopicPartition(place.traces, n): -1 for n in range(place.partitions)})
    admin.close()
    until(lambda: other.get(path))
    assert "[email]" in other.get(path)
    assert MAIL not in other.get(path)


def read_what_is_there(place: Place) -> None:
    """After all before was deleted."""
    part = TopicPartition(place.traces, 0)
    consumer = KafkaConsumer(bootstrap_servers=place.server.bootstrap)
    end = consumer.end_offsets([part])[part]
    consumer.close()
    assert end > 10
    place.produce([b"one", b"-", b"-", b"-", b"two"])  # to the partitions in turn

    async def read() -> list[bytes | None]:
        reader = TraceTopicReader(place.settings.kafka, place.traces, seconds=2)
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
