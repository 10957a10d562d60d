"""Faust's table recovery without the races that lose messages.

**Of the streams** (Faust issue 596). When a table is recovered, Faust 0.15 resumes the partitions
of the streams while messages still flow from reading the changelog, then seeks to the committed
offsets, one round trip each, and then clears the queues. What was delivered in between is thrown
away although the position has moved on; the next message makes it look like a gap that compaction
has left, and the commit goes past it. On a real broker three of six chaos runs lost traces or stood
still; with the flow off first, none of six did.

**Of the changelog.** Whoever delivers a record of the changelog waits for room in a queue. A
rebalance empties the queue, but where there has just been room for the one that waits, its record
goes into the queue behind that. To Faust all before it is read then, goes on behind it, and a part
of the state is missing, silently. So what another generation has left is dropped, and a record in
front of which others are missing ends the worker.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

from faust.channels import ThrowableQueue  # type: ignore[attr-defined]
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP, EventT

from agent.kafka.client.committed_reads import Gap, Since

__all__ = ["ChangelogQueue", "Owner", "SafeTableManager"]


class Owner(Protocol):
    """What an app is that owns state by partition."""

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """The tables hold all that the changelogs did when `generation` was formed: those of
        `assigned`. Nothing of the streams is delivered before this returns."""

    def taken_over(self, generation: int) -> None:
        """The positions are the committed ones, and messages flow."""

    async def fail(self, error: BaseException) -> None:
        """The worker ends."""


class ChangelogQueue(ThrowableQueue[EventT[Any]]):
    """Gives what continues what was read before, in this generation."""

    manager: TableManager

    async def get(self) -> EventT[Any]:
        while True:
            event: EventT[Any] = await super().get()
            if await self._follows(event.message):
                return event

    async def _follows(self, message: Any) -> bool:
        app, consumer = self.manager.app, cast(Any, self.manager.app.consumer)
        # what comes when the flow is off is read again when it is on
        if message.generation_id != app.consumer_generation_id or not consumer.flow_active:
            return False
        recovery = self.manager.recovery
        seen = recovery.active_offsets.get(message.tp)
        if message.tp not in recovery.active_tps or seen is None:
            return False
        since = message.checksum
        if isinstance(since, Since) and since > seen + 1:
            await cast(Owner, app).fail(
                Gap(
                    f"{message.topic}/{message.partition}: of the changelog offset"
                    f" {message.offset} came, and of those from {seen + 1} on none did"
                )
            )
            return False
        return True


class _SafeRecovery(Recovery):
    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        consumer, flow = self.app.consumer, self.app.flow_control
        consumer.stop_flow()
        flow.suspend()
        await consumer.wait_for_stopped_flow()  # type: ignore[attr-defined]
        await asyncio.sleep(0)  # what the fetcher had in hand is put into the queues by now
        owner = cast(Owner, self.app)
        if self.app.consumer_generation_id == generation_id:
            tps: set[TP] = self.active_tps
            owner.take_over(generation_id, set(tps))
        await super().on_recovery_completed(generation_id)
        if self.app.consumer_generation_id == generation_id:
            owner.taken_over(generation_id)


class SafeTableManager(TableManager):
    """To be given to the app as `TableManager`."""

    @property
    def changelog_queue(self) -> Any:
        if self._changelog_queue is None:
            queue = ChangelogQueue(
                self.app.conf.stream_buffer_maxsize,
                flow_control=self.app.flow_control,
                clear_on_resume=True,
            )
            queue.manager = self
            self._changelog_queue = cast(Any, queue)
        return self._changelog_queue

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _SafeRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
