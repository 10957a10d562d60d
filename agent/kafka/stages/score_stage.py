"""Stage 1 on the cluster: a trace in, one complete record in the topic of the scores, then the ack.

Every message ends in exactly one of these: a record (of OTLP: its spans in their topic, where they
become traces), or a dead letter. Either is delivered before it is acknowledged, and messages are
acknowledged in order (`agent.kafka.stages.acked_stage`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError
from faust.types import EventT, TopicT

from agent.config import Limits
from agent.consistency.wording import Wordings
from agent.counters import Counters
from agent.indexing.event import decode_one as decode_event
from agent.indexing.event import is_event
from agent.ingest.native import Bad, decode_one
from agent.kafka.messages.encodings import Encoding, encoding_of
from agent.kafka.messages.records import ScoreRecord, TooLarge, encode_index, encode_record
from agent.kafka.messages.source import Source
from agent.kafka.stages.acked_stage import AckedStage, arrival_of
from agent.kafka.stages.otlp_in import OtlpIn, Unusable
from agent.kafka.stages.preparing import Preparing
from agent.kafka.stages.sending import DeadTopic, deliver
from agent.kafka.stages.slow import InLine
from agent.labelling.placed import passage_keys
from agent.settings.kafka import TracesEncoding

__all__ = ["ScoreStage"]

SOURCE = (("source", "kafka"),)


class ScoreStage(AckedStage):
    """`labelled`: whether labels may come for the traces."""

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
        labelled: bool = False,
    ) -> None:
        super().__init__(dead, counters, in_flight=in_flight, failed=failed)
        self._limits = limits
        self._wordings = wordings
        self._preparing = preparing
        self._otlp = otlp
        self._encoding = encoding
        self._tiers = tiers
        self._scores = scores
        self._epoch = epoch
        self._labelled = labelled

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
            keys = passage_keys(trace) if self._labelled else None
            data = encode_record(ScoreRecord(self._preparing.sent(found.trace), source, keys))
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
