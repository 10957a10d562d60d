"""Stage 1 on the cluster: a trace in, one complete record in the topic of the scores, then the ack.

Every message ends in exactly one of these: a record (of OTLP: its spans in their topic, where they
become traces), or a dead letter. Either is delivered before it is acknowledged, and messages are
acknowledged in order. What nobody expected (a broker that refuses, a mistake of ours, a gap in the
offsets) ends the worker, and nothing is lost by that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError
from faust import Stream
from faust.types import EventT, StreamT, TopicT

from agent.config import Limits
from agent.consistency.wording import Wordings
from agent.counters import Counters
from agent.indexing.event import decode_one as decode_event
from agent.indexing.event import is_event
from agent.ingest.native import Bad, decode_one
from agent.kafka.client.settled import let_go
from agent.kafka.messages.encodings import Encoding, encoding_of
from agent.kafka.messages.records import ScoreRecord, TooLarge, encode_index, encode_record
from agent.kafka.messages.source import Source
from agent.kafka.stages.acks import OrderedAcks
from agent.kafka.stages.gaps import NoGaps, check
from agent.kafka.stages.otlp_in import OtlpIn, Unusable
from agent.kafka.stages.preparing import Preparing
from agent.kafka.stages.sending import DeadTopic, deliver
from agent.kafka.stages.slow import InLine
from agent.settings.kafka import TracesEncoding

__all__ = ["ScoreStage", "arrival_of"]

SOURCE = (("source", "kafka"),)
LOG_APPEND = 1  # a message's time is that of the broker


def arrival_of(message: Any, now: float) -> float | None:
    """When a message came to the broker: by its clock and not by ours, for whoever scores it again
    should find the same. Where the time is the producer's, whose clock may be that of the trace, it
    cannot be later than now."""
    if not message.timestamp:
        return None
    found = float(message.timestamp)
    return found if message.timestamp_type == LOG_APPEND else min(found, now)


class ScoreStage:
    """`in_flight` is K of `agent.kafka.stages.acks`. `failed` ends the worker."""

    def __init__(
        self,
        limits: Limits,
        preparing: Preparing,
        otlp: OtlpIn | None,
        tiers: InLine,
        scores: TopicT,
        dead: DeadTopic,
        counters: Counters,
        *,
        encoding: TracesEncoding,
        epoch: int,
        in_flight: int,
        failed: Callable[[BaseException], Awaitable[object]],
        wordings: Wordings | None = None,
    ) -> None:
        self._limits = limits
        self._wordings = wordings
        self._preparing = preparing
        self._otlp = otlp
        self._encoding = encoding
        self._tiers = tiers
        self._scores = scores
        self._dead = dead
        self._counters = counters
        self._epoch = epoch
        self._in_flight = in_flight
        self._failed = failed
        self._acks: OrderedAcks[EventT[Any]] | None = None

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

    async def _handle(self, event: EventT[Any]) -> None:
        message = event.message
        value: bytes = message.value or b""
        source = Source(self._epoch, message.partition, message.offset)
        if self._otlp is not None:
            encoding = encoding_of(value, message.headers, self._encoding)
            if encoding is not Encoding.NATIVE:
                try:
                    await self._otlp.take(value, encoding, source)
                except Unusable as error:
                    await self._bury(event, error.reason, (("", str(error)),))
                except MessageSizeTooLargeError:  # a topic that was not made by `kafka init`
                    await self._bury(event, "too_large", (("", "a span is larger than a message"),))
                return
        if is_event(value):
            await self._index(event, value)
            return
        item = decode_one(value, self._limits.trace_bytes)
        if isinstance(item, Bad):
            await self._bury(event, item.reason, item.errors)
            return
        trace = await self._preparing.trace(item)
        timestamp = trace.timestamp.timestamp()
        arrived = arrival_of(message, time.time())
        if arrived is not None and timestamp > arrived + self._limits.future_seconds:
            timestamp = arrived
            self._counters.inc("ragmeter_clock_skew_total", SOURCE)
        found = await self._tiers.whole(trace, timestamp)
        if self._wordings is not None:
            found.trace.wording = self._wordings.of(trace)
        try:
            data = encode_record(ScoreRecord(self._preparing.sent(found.trace), source))
            await deliver(self._scores, trace.service.encode("utf-8", "replace"), data)
        except (TooLarge, MessageSizeTooLargeError):
            await self._bury(event, "too_large", (("", "its scores are larger than a message"),))
            return
        except ValueError as error:  # a mistake of ours that this trace has found
            await self._bury(event, "internal_error", (("", repr(error)[:200]),))
            return
        self._counters.inc("ragmeter_traces_received_total", SOURCE)

    async def _index(self, event: EventT[Any], value: bytes) -> None:
        """An index event goes on to where its service is counted. It has an id, so it counts once
        wherever it was read; no source is needed."""
        message = event.message
        found = decode_event(value)
        if isinstance(found, Bad):
            await self._bury(event, found.reason, found.errors)
            return
        at = found.timestamp.timestamp()
        arrived = arrival_of(message, time.time())
        if arrived is not None and at > arrived + self._limits.future_seconds:
            at = arrived
        try:
            data = encode_index(value, at)
            await deliver(self._scores, found.service.encode("utf-8", "replace"), data)
        except MessageSizeTooLargeError:  # a topic that was not made by `kafka init`
            await self._bury(event, "too_large", (("", "the event is larger than a message"),))

    async def _bury(
        self, event: EventT[Any], reason: str, errors: tuple[tuple[str, str], ...]
    ) -> None:
        await self._dead.send(event, reason, errors)
        self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))
