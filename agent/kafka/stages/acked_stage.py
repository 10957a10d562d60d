"""A stage without a state: each message is handled, many at a time, and acknowledged in order.

What a subclass makes of a message is delivered before it returns. What nobody expected (a broker
that refuses, a mistake of ours, a gap in the offsets) ends the worker, and nothing is lost by that.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from faust import Stream
from faust.types import EventT, StreamT

from agent.counters import Counters
from agent.kafka.client.settled import let_go
from agent.kafka.stages.acks import OrderedAcks
from agent.kafka.stages.gaps import NoGaps, check
from agent.kafka.stages.sending import DeadTopic

__all__ = ["AckedStage", "arrival_of"]

LOG_APPEND = 1  # a message's time is that of the broker


def arrival_of(message: Any, now: float) -> float | None:
    """When a message came to the broker: by its clock and not by ours, for whoever scores it again
    should find the same. Where the time is the producer's, whose clock may be that of the trace, it
    cannot be later than now."""
    if not message.timestamp:
        return None
    found = float(message.timestamp)
    return found if message.timestamp_type == LOG_APPEND else min(found, now)


class AckedStage(ABC):
    """`in_flight` is K of `agent.kafka.stages.acks`. `failed` ends the worker."""

    def __init__(
        self,
        dead: DeadTopic,
        counters: Counters,
        *,
        in_flight: int,
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        self._dead = dead
        self._counters = counters
        self._in_flight = in_flight
        self._failed = failed
        self._acks: OrderedAcks[EventT[Any]] | None = None

    @abstractmethod
    async def _handle(self, event: EventT[Any]) -> None:
        """Returns when what came of the message is delivered."""

    async def agent(self, stream: StreamT[Any]) -> None:
        """The body of the Faust agent: one actor, own acks."""
        assert isinstance(stream, Stream)
        stream = stream.noack()
        acks = self._acks = OrderedAcks(self._in_flight, self._handle, stream.ack, self._failed)
        gaps = NoGaps()
        try:
            async for event in stream.events():
                message = event.message
                generation = message.generation_id or 0
                await check(stream.app, gaps, message, self._counters)
                if not await acks.submit(message.partition, generation, message.offset, event):
                    let_go(stream.app, [message])
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # an exception that leaves an agent acknowledges its event
            await self._failed(error)
            raise

    def hold(self) -> None:
        """The group is about to form anew, and waits for what is under way: not for what waits for
        a place behind that, which could take as long again."""
        if self._acks is not None:
            for event in self._acks.hold():
                let_go(event.app, [event.message])

    def release(self) -> None:
        """All partitions were revoked."""
        if self._acks is not None:
            self._acks.close(list(self._acks.book.oldest()))

    @property
    def waiting(self) -> int:
        return self._acks.book.waiting + self._acks.book.running if self._acks else 0

    async def _bury(
        self, event: EventT[Any], reason: str, errors: tuple[tuple[str, str], ...]
    ) -> None:
        await self._dead.send(event, reason, errors)
        self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))
