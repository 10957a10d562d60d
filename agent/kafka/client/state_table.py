"""The tables of the stages: raw bytes that reach the changelog before anybody relies on them.

`table[key] = value` of Faust hides what becomes of the changelog record, and the source offset is
committed whether or not it was delivered: a flush gives up after 0.1 s, a failed send is only
logged. Here a write is awaited, and enters the table when the broker has it. No windowed tables:
after a recovery nothing in them expires.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaProducer
from aiokafka.producer import sender
from faust.transport.drivers.aiokafka import Producer
from faust.types import TP

from agent.kafka.client.refused import NumbersAgain
from agent.kafka.state.slot_log import Write, partition_of

__all__ = ["IdempotentProducer", "StateTable"]


class IdempotentProducer(Producer):
    """A retry of the changelog must not bring back what was overwritten since: Faust's producer is
    idempotent in its transactions only."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> AIOKafkaProducer:
        sender.SendProduceReqHandler = NumbersAgain
        return super()._new_producer(transactional_id)


class StateTable(faust.Table[bytes, bytes]):
    """One dictionary for all partitions that are owned; keys begin with `PARTITION/`.

    The content is what was read from the changelog at the last takeover and what this worker has
    written and got acknowledged since.
    """

    @classmethod
    def add_to(cls, app: faust.App, name: str, partitions: int) -> StateTable:
        table = cls(
            app,
            name=name,
            partitions=partitions,
            key_type=bytes,
            value_type=bytes,
            default=None,
        )
        app.tables.add(table)
        return table

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """What is read anew must not meet what it has replaced: a row that was deleted meanwhile
        would be back. Faust forgets such keys at the end of a recovery only, which may not come."""
        topic = self.changelog_topic_name
        gone = {tp.partition for tp in revoked | newly_assigned if tp.topic == topic}
        for key in [key for key in self.data if partition_of(key) in gone]:
            del self.data[key]
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def by_partition(self) -> dict[int, list[tuple[bytes, bytes | None]]]:
        found: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        for key, value in self.data.items():
            found[partition_of(key)].append((key, value))
        return found

    async def send_changelog(  # type: ignore[override]
        self, partition: int, key: bytes, value: bytes | None
    ) -> None:
        """Returns when the broker has it. Faust's goes through a buffer and costs 100 us more."""
        producer = await self.app.maybe_start_producer()
        topic = self.changelog_topic_name
        await (await producer.send(topic, key, value, partition, None, {}))

    async def write(self, partition: int, writes: Iterable[Write]) -> None:
        """Returns when the broker has all of them. Raises what the producer does."""
        writes = list(writes)
        await asyncio.gather(
            *(self.send_changelog(partition, write.key, write.value) for write in writes)
        )
        for key, value in writes:
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value
