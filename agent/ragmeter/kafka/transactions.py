"""Owners with a state: its rows, other records and the offset of a step in one Kafka transaction.

Each of these partitions has a transactional id of its own. Opening it fences the owner before, and
completes or aborts the transaction that one had begun; only then are the committed offset and the
state read. So whoever commits has read all that was committed before, whatever the consumer group
says and however long a replaced worker lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation

from ragmeter.config.kafka import KafkaSettings
from ragmeter.kafka.owners import (
    SEND_SECONDS,
    STOP_SECONDS,
    BeginAgain,
    OutRecord,
    OwnerGroup,
    PartitionOwner,
    make_consumer,
    make_producer,
)

_TRANSACTION_MS = 60_000  # Kafka's default, and more than `SEND_SECONDS`
_FETCH_BYTES = 4 * 2**20  # of a partition in a response
_READ_MS = 500  # longest wait of one read of a state topic


async def read_rows(kafka: KafkaSettings, topic: str, partition: int) -> dict[bytes, bytes]:
    """Return the last committed value of each key of a partition, without deleted ones."""
    rows: dict[bytes, bytes] = {}
    tp = TopicPartition(topic, partition)
    consumer = make_consumer(kafka, max_partition_fetch_bytes=_FETCH_BYTES)
    await consumer.start()
    try:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(tp, timeout_ms=_READ_MS)).values():
                for record in records:
                    if record.value is None:
                        rows.pop(record.key, None)
                    else:
                        rows[record.key] = record.value
    finally:
        await consumer.stop()
    return rows


class TransactionalOwner(PartitionOwner):
    """An owner that commits in transactions of a producer of its own."""

    compression: str | None = None

    def __init__(self, group: OwnerGroup, tp: TopicPartition) -> None:
        super().__init__(group, tp)
        self._producer: AIOKafkaProducer | None = None

    async def connect(self) -> None:
        """Fence the owner before."""
        self._producer = make_producer(
            self.group.kafka,
            self.group.largest,
            compression_type=self.compression,
            transactional_id=f"{self.group.name}-{self.tp.topic}-{self.tp.partition}",
            transaction_timeout_ms=_TRANSACTION_MS,
        )
        await self._producer.start()

    async def disconnect(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(STOP_SECONDS):
                    await producer.stop()

    async def commit(self, records: Iterable[OutRecord], position: int) -> None:
        """Send records and commit the offset, both or neither.

        Raises:
            ProducerFenced: Another worker owns the partition by now.
            BeginAgain: The transaction has ended by itself.
        """
        try:
            await self._commit_transaction(records, position)
        except IllegalOperation as error:
            # The client has ended the transaction by itself: the process was frozen for longer than
            # its timeout, and another worker may own the partition.
            raise BeginAgain(f"the transaction has ended meanwhile: {error}") from error
        self.advance(position)

    async def _commit_transaction(self, records: Iterable[OutRecord], position: int) -> None:
        producer = self._producer
        if producer is None:
            raise RuntimeError("producer is missing")
        async with asyncio.timeout(SEND_SECONDS):
            await producer.begin_transaction()
            sent: list[asyncio.Future[Any]] = [
                await producer.send(*record.arguments, headers=list(record.headers.items()))
                for record in records
            ]
            await producer.send_offsets_to_transaction({self.tp: position}, self.group.name)
            await asyncio.gather(*sent)
            await producer.commit_transaction()
