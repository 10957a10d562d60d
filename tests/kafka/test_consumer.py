"""What a consumer delivers of transactions, and what it says of the offsets between."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from ragmeter.config.settings import Settings
from ragmeter.kafka.consumer import ContiguousFrom, ContiguousRecords, GapDetector
from ragmeter.kafka.operator.clients import consumer, partitions_of, records_between
from tests.kafka_server import KafkaServer

pytestmark = pytest.mark.real


@pytest.fixture
def topic(broker: KafkaServer) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    admin.wait_for_topics([name])
    admin.close()
    return name


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fetcher, "PartitionRecords", ContiguousRecords)
    yield
    ContiguousRecords._ends.clear()


def transactions(server: KafkaServer, topic: str, seed: int) -> list[bytes]:
    """Committed, aborted and plain messages in any order; what is to be read."""
    chance = random.Random(seed)
    good: list[bytes] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    plain = KafkaProducer(bootstrap_servers=server.bootstrap, acks="all")
    for number in range(60):
        bodies = [b"%d/%d" % (number, n) for n in range(chance.randint(1, 4))]
        kind = chance.choice(["plain", "commit", "abort"])
        if kind == "plain":
            for body in bodies:
                plain.send(topic, body, partition=0).get(10)
        else:
            producer.begin_transaction()
            for body in bodies:
                producer.produce(topic, body, partition=0)
            producer.flush(10)
            if kind == "commit":
                producer.commit_transaction(20)
            else:
                producer.abort_transaction(20)
        good += bodies if kind != "abort" else []
    plain.close()
    return good


async def read(
    server: KafkaServer, topic: str, count: int, most: int
) -> tuple[list[tuple[int, int, bytes]], int, int]:
    """Offset, since and body of each; where the reader stands at last, and the end of the log."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=300,  # many answers: runs of nothing lie across them
    )
    part = TopicPartition(topic, 0)
    await consumer.start()
    try:
        consumer.assign([part])
        found: list[tuple[int, int, bytes]] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                records = await consumer.getmany(part, timeout_ms=200, max_records=most)
                for record in records.get(part, []):
                    assert isinstance(record.checksum, ContiguousFrom)
                    found.append((record.offset, int(record.checksum), record.value))
        end = (await consumer.end_offsets([part]))[part]
        while await consumer.position(part) < end:
            assert not (await consumer.getmany(part, timeout_ms=200)).get(part)
        return found, await consumer.position(part), end
    finally:
        await consumer.stop()


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize("seed", [1, 2])
def test_claims_join_up_and_a_message_that_is_left_out_is_seen(
    broker: KafkaServer, topic: str, seed: int
) -> None:
    good = transactions(broker, topic, seed)
    found, position, end = asyncio.run(read(broker, topic, len(good), most=1 + 6 * seed))
    assert [body for *_, body in found] == good
    assert position == end > found[-1][0]
    holes = sum(b[0] - a[0] > 1 for a, b in itertools.pairwise(found))
    assert holes > 20, "there is something to tell apart"
    gaps = GapDetector()
    for offset, since, _ in found:
        assert not gaps.missing_offsets(0, 1, offset, since, committed=0)
    for left_out in range(1, len(found) - 1):
        gaps = GapDetector()
        told = [
            gaps.missing_offsets(0, 1, offset, since, committed=0)
            for number, (offset, since, _) in enumerate(found)
            if number != left_out
        ]
        assert [where for where, missing in enumerate(told) if missing] == [left_out]


def test_the_commands_read_past_marks(
    broker: KafkaServer, topic: str, settings_of: Callable[..., Settings]
) -> None:
    good = transactions(broker, topic, 3)
    with consumer(settings_of().kafka) as reader:
        (part,) = partitions_of(reader, [topic])
        end = reader.end_offsets([part])[part]
        found = [record.value for record in records_between(reader, part, 0, end)]
    assert set(good) <= set(found)
    assert len(found) < end, "there are marks"
