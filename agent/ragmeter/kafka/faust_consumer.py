"""Faust's consumer, with marks by which an owner notices what Faust has dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP

from ragmeter.kafka.client_logs import FAUST_LOG
from ragmeter.kafka.seeks import Seeks


class _ReadingThread(AIOKafkaConsumerThread):
    """Faust's thread, which also marks records with the offset from which on none precedes them.

    Faust drops what its queues hold at a rebalance. The mark lets an owner notice that, and ends of
    transactions, which take an offset and are delivered to nobody, are not taken for it.
    """

    logger = FAUST_LOG

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks = Seeks()
        self._next: dict[Any, int] = {}

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        # Faust reads committed messages in its own transactions only
        self.consumer.in_transaction = True
        try:
            return super()._create_worker_consumer(transport)
        finally:
            self.consumer.in_transaction = False

    async def seek_to_committed(self) -> Mapping[TP, int]:
        offsets: Mapping[TP, int] = await super().seek_to_committed()
        self._seeks.pending |= {TopicPartition(*tp): at or 0 for tp, at in offsets.items()}
        return offsets

    def seek(self, partition: TP, offset: int) -> None:
        self._seeks.pending[TopicPartition(*partition)] = offset

    async def _fetch_records(self, consumer: Any, *args: Any, **options: Any) -> Any:
        self._next |= self._seeks.apply(consumer)
        found = self._seeks.valid(await super()._fetch_records(consumer, *args, **options))
        for tp, records in found.items():
            for record in records:
                # a field that is unused since message format 2
                record.checksum = min(self._next.get(tp, 0), record.offset)
                self._next[tp] = record.offset + 1
        return found

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Leave out: Faust would warn that nothing is committed, which it never is."""


class _NoOffsets(dict[TP, int | None]):
    """Offsets that are never known.

    Faust drops messages below the last offset that it has passed on, and sets that from messages
    of before a seek: what was sought would never come.
    """

    def __missing__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: object) -> None:
        pass

    def update(self, *offsets: Any, **more: Any) -> None:
        """Forget them."""


class ReadingConsumer(Consumer):
    """Faust's consumer with such a thread."""

    logger = FAUST_LOG

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_offset = _NoOffsets()

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ReadingThread(self, loop=self.loop, beacon=self.beacon)
