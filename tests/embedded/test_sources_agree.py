"""One suite for every way in: what a source must do, whatever it reads. See `ways.py`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.ways import FileWay, HttpWay, KafkaWay, Way
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("swept"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SERVICES = ("bot", "search", "faq")
STOP_SECONDS = 20.0  # limits.drain_seconds and a busy machine
POISON = {b'{"trace_id": 1': "invalid_json", b'{"service": "x"}': "invalid_trace"}


@pytest.fixture(params=["file", "http", pytest.param("kafka", marks=pytest.mark.real)])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    made: Way
    if request.param == "kafka":
        server: KafkaServer = request.getfixturevalue("broker")
        made = KafkaWay(Place(server, tmp_path))
    else:
        made = FileWay(tmp_path) if request.param == "file" else HttpWay(tmp_path)
    yield made
    made.close()


def traffic(count: int) -> list[bytes]:
    """One in fifty comes twice, and one in a hundred cannot be read."""
    lines = []
    for n in range(count):
        lines.append(trace_line(n, service=SERVICES[n % len(SERVICES)]))
        if n % 50 == 0:
            lines.append(lines[-1])
        if n % 100 == 0:
            lines.append(list(POISON)[n // 100 % len(POISON)])
    return lines


def truth(count: int) -> dict[str, int]:
    return {service: count // len(SERVICES) for service in SERVICES}


def test_each_is_counted_once_poison_is_kept_and_what_waits_is_said(way: Way) -> None:
    lines = traffic(way.count)
    way.give(lines)
    way.start()
    seen = 0.0

    def all_counted() -> bool:
        nonlocal seen
        seen = max(seen, way.waiting())
        return way.counted() == truth(way.count)

    until(all_counted)
    assert seen > 0
    until(lambda: way.waiting() == 0)
    until(lambda: way.acknowledged() == len(lines))
    poison = Counter((line, POISON[line]) for line in lines if line in POISON)
    assert Counter(way.dead()) == poison
    assert way.stop(STOP_SECONDS) == 0


def test_what_was_acknowledged_is_durable_and_the_rest_comes_again(way: Way) -> None:
    """Nobody sends again what was acknowledged, so what a kill took of it would be missing."""
    lines = traffic(way.count)
    rng = random.Random(1)
    middle = 0
    way.give(lines)
    for part in (0.1, 0.4, 0.7):
        way.start()
        until(lambda part=part: way.acknowledged() >= part * len(lines))  # type: ignore[misc]
        until(lambda: rng.random() < 0.3)
        middle += 0 < way.acknowledged() < len(lines)
        way.kill()
    assert middle, "every kill came too late: more lines"
    way.start()
    until(lambda: way.counted() == truth(way.count))
    until(lambda: way.acknowledged() == len(lines))
    assert way.counted() == truth(way.count)
    # a letter may come twice where the kill fell between it and its acknowledgement
    assert set(way.dead()) == set(POISON.items())
    assert way.stop(STOP_SECONDS) == 0
