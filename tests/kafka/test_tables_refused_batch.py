"""A batch that is too large is refused alone; what comes behind it goes through."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer import sender
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from ragmeter.kafka.tables import SequenceRestoringHandler
from tests.kafka_server import KafkaServer

pytestmark = pytest.mark.real


@pytest.fixture
def topic(broker: KafkaServer) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    limit = {"max.message.bytes": "10000"}
    admin.create_topics(
        [NewTopic(name, num_partitions=1, replication_factor=1, topic_configs=limit)]
    )
    admin.wait_for_topics([name])
    admin.close()
    return name


def test_what_comes_behind_a_refused_batch_goes_through(
    broker: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "SendProduceReqHandler", SequenceRestoringHandler)
    sizes = [10, 20_000, 30, 20_000, 20_000, 40, *range(100, 160)]

    async def main() -> list[bool]:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            acks="all",
            enable_idempotence=True,
            max_request_size=1_000_000,
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, b"x" * size, partition=0) for size in sizes]
            told = await asyncio.gather(*sent, return_exceptions=True)
        finally:
            await producer.stop()
        assert all(
            not isinstance(one, BaseException) or isinstance(one, MessageSizeTooLargeError)
            for one in told
        ), told
        return [not isinstance(one, BaseException) for one in told]

    went = asyncio.run(main())
    assert went == [size < 10_000 for size in sizes]
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=1_500)
    reader.assign([TopicPartition(topic, 0)])
    reader.seek_to_beginning()
    assert [len(record.value) for record in reader] == [size for size in sizes if size < 10_000]
    reader.close()
