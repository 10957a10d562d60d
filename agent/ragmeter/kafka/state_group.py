"""The consumer group of the aggregate processor: Faust's.

Its records are few, and its agents hand them to the owners of their partitions. Faust neither
tracks nor commits offsets here (`acks=False`): owners commit theirs in transactions
(`ragmeter.kafka.transactions`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from aiokafka import TopicPartition
from faust import App
from faust.types import TP

from ragmeter.config.settings import Settings
from ragmeter.kafka.connection import HEARTBEAT_SECONDS, REBALANCE_SECONDS, faust_options
from ragmeter.kafka.faust_consumer import ReadingConsumer
from ragmeter.kafka.owners import OwnerGroup

S = TypeVar("S")


class StateGroup(OwnerGroup):
    """Faust's consumer group, whose owners have a `state` each; `agents` are names by topic.

    `lock` is held while one of them changes, and by other threads that read one.
    """

    def __init__(
        self, settings: Settings, agents: Mapping[str, str], datadir: Path, *parts: Any
    ) -> None:
        kafka = settings.kafka
        super().__init__(settings, kafka.group, *parts)
        self.lock = threading.RLock()
        self.app = App(
            kafka.group,
            **faust_options(kafka),
            loop=asyncio.get_running_loop(),
            datadir=datadir,  # Faust makes it, though there are no tables
            store="memory://",
            # topics are made by `ragmeter kafka init`, with the right partitions and retention
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=kafka.partitions,
            stream_recovery_delay=0.0,
            stream_buffer_maxsize=256,
            broker_max_poll_records=500,
            broker_session_timeout=kafka.session_seconds,
            broker_heartbeat_interval=HEARTBEAT_SECONDS,
            broker_rebalance_timeout=REBALANCE_SECONDS,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=4 * 2**20,
            web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
        )
        cast(Any, self.app.transport).Consumer = ReadingConsumer
        cast(Any, self.app.on_partitions_assigned).connect(self._assigned, weak=False)
        # topics of bytes: a typed one acknowledges messages that it cannot decode
        raw: Any = {"key_type": bytes, "value_type": bytes, "acks": False}
        raw |= {"key_serializer": "raw", "value_serializer": "raw"}
        for topic, name in agents.items():
            self.app.agent(self.app.topic(topic, **raw), name=name)(self._deliver)

    def states(self, kind: type[S]) -> dict[int, S]:
        """Return the loaded states of a kind by partition."""
        owners: list[tuple[TopicPartition, Any]] = list(self.owners.items())
        return {
            tp.partition: owner.state
            for tp, owner in owners
            if owner.loaded and isinstance(owner.state, kind)
        }

    async def _assigned(self, app: App, assigned: set[TP], **_: Any) -> None:
        await self.assign(TopicPartition(*tp) for tp in assigned)

    async def _deliver(self, stream: Any) -> None:
        """Hand messages to the owners of their partitions; the body of Faust's agents."""
        async for event in stream.noack().events():
            message = event.message
            tp = TopicPartition(message.topic, message.partition)
            owner = self.owners.get(tp)
            if owner is not None:
                await owner.wait_for_room()
                owner.put(message, message.checksum)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Deliver the messages of an assigned partition from an offset on."""
        if TP(*tp) in self.app.consumer.assignment():
            await self.app.consumer.seek(TP(*tp), offset)

    async def reached(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions were read, and their ends, of those that are assigned."""
        consumer = self.app.consumer
        here = [TP(*tp) for tp in tps if TP(*tp) in consumer.assignment()]
        ends = await consumer.highwaters(*here) if here else {}
        return {
            TopicPartition(*tp): (await consumer.position(tp) or 0, end) for tp, end in ends.items()
        }
