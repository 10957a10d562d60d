"""Score traces and accept feedback: each message becomes one record of the scores topic or a dead letter.

Stage 1 on the cluster: a trace in, one complete record in the topic of the scores, then the ack.

Every message ends in exactly one of these: a record (of OTLP: its spans in their topic, where they
become traces), or a dead letter. Either is delivered before it is acknowledged, and messages are
acknowledged in order (`ragmeter.kafka.processors.acknowledged`).

Feedback from its topic to the partition that its service is counted in.

It may have any key: whoever reads it sends it on to where the traces of its service are, as a
record among theirs, so that the state there is one and its steps are what they were. That needs the
service, since nobody knows of a trace id alone where its trace was counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError
from faust.types import EventT, TopicT

from ragmeter.aggregate.feedback_join import ranked_passage_keys
from ragmeter.aggregate.index_events import decode_index_event as decode_event
from ragmeter.aggregate.index_events import is_index_event
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.config.kafka import TracesEncoding
from ragmeter.config.settings import LimitSettings, Settings
from ragmeter.core.counters import Counters
from ragmeter.embedded.intake import feedback_rows
from ragmeter.ingest.feedback import INVALID, decode_feedback
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.kafka.processors.acknowledged import AckedProcessor, arrival_time
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer, deliver
from ragmeter.kafka.processors.otlp import OtlpSplitter, UnusableMessage
from ragmeter.kafka.processors.slow_tiers import InlineTiers
from ragmeter.kafka.score_records import (
    FeedbackRecord,
    RecordTooLarge,
    ScoreRecord,
    SourceOffset,
    encode_feedback,
    encode_index,
    encode_score,
)
from ragmeter.kafka.span_records import MessageEncoding, message_encoding

_SOURCE_LABEL = (("source", "kafka"),)


class ScoreProcessor(AckedProcessor):
    """`labelled`: whether labels may come for the traces."""

    def __init__(
        self,
        limits: LimitSettings,
        preparing: TracePreparer,
        otlp: OtlpSplitter | None,
        tiers: InlineTiers,
        scores: TopicT,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        encoding: TracesEncoding,
        epoch: int,
        in_flight: int,
        failed: Callable[[BaseException], Awaitable[object]],
        wordings: WordingBuilder | None = None,
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
        source = SourceOffset(self._epoch, message.partition, message.offset)
        if self._otlp is not None:
            encoding = message_encoding(value, message.headers, self._encoding)
            if encoding is not MessageEncoding.NATIVE:
                try:
                    await self._otlp.split_request(value, encoding, source)
                except UnusableMessage as error:
                    await self._send_dead_letter(event, error.reason, (("", str(error)),))
                except MessageSizeTooLargeError:  # a topic that was not made by `kafka init`
                    await self._send_dead_letter(
                        event, "too_large", (("", "a span is larger than a message"),)
                    )
                return
        if is_index_event(value):
            await self._index(event, value)
            return
        item = decode_trace(value, self._limits.trace_bytes)
        if isinstance(item, DecodeFailure):
            await self._send_dead_letter(event, item.reason, item.errors)
            return
        trace = await self._preparing.prepare(item)
        timestamp = trace.timestamp.timestamp()
        arrived = arrival_time(message, time.time())
        if arrived is not None and timestamp > arrived + self._limits.future_seconds:
            timestamp = arrived
            self._counters.inc("ragmeter_clock_skew_total", _SOURCE_LABEL)
        scored = await self._tiers.score_trace(trace, timestamp)
        if self._wordings is not None:
            scored = scored.with_wording(self._wordings.of(trace))
        try:
            keys = ranked_passage_keys(trace) if self._labelled else None
            data = encode_score(ScoreRecord(self._preparing.publishable(scored), source, keys))
            await deliver(self._scores, trace.service.encode("utf-8", "replace"), data)
        except (RecordTooLarge, MessageSizeTooLargeError):
            await self._send_dead_letter(
                event, "too_large", (("", "its scores are larger than a message"),)
            )
            return
        except ValueError as error:  # a mistake of ours that this trace has found
            await self._send_dead_letter(event, "internal_error", (("", repr(error)[:200]),))
            return
        self._counters.inc("ragmeter_traces_received_total", _SOURCE_LABEL)

    async def _index(self, event: EventT[Any], value: bytes) -> None:
        """An index event goes on to where its service is counted. It has an id, so it counts once
        wherever it was read; no source is needed."""
        message = event.message
        found = decode_event(value)
        if isinstance(found, DecodeFailure):
            await self._send_dead_letter(event, found.reason, found.errors)
            return
        at = found.timestamp.timestamp()
        arrived = arrival_time(message, time.time())
        if arrived is not None and at > arrived + self._limits.future_seconds:
            at = arrived
        try:
            data = encode_index(value, at)
            await deliver(self._scores, found.service.encode("utf-8", "replace"), data)
        except MessageSizeTooLargeError:  # a topic that was not made by `kafka init`
            await self._send_dead_letter(
                event, "too_large", (("", "the event is larger than a message"),)
            )


_NO_SERVICE = (
    ("service", "is needed over Kafka, or kafka.feedback_service for feedback that names none"),
)


class FeedbackProcessor(AckedProcessor):
    """Every message ends in exactly one of these: a record in the topic of the scores, or a dead
    letter. Either is delivered before it is acknowledged."""

    def __init__(
        self,
        settings: Settings,
        scores: TopicT,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        failed: Callable[[BaseException], Awaitable[object]],
    ) -> None:
        super().__init__(dead, counters, in_flight=settings.kafka.in_flight, failed=failed)
        self._scores = scores
        self._epoch = settings.kafka.feedback_epoch
        self._service = settings.kafka.feedback_service
        self._ahead = settings.limits.future_seconds

    async def _handle(self, event: EventT[Any]) -> None:
        message = event.message
        found = decode_feedback(message.value or b"")
        if isinstance(found, DecodeFailure):
            await self._send_dead_letter(event, found.reason, found.errors)
            return
        service = found.service or self._service
        if service is None:
            await self._send_dead_letter(event, INVALID, _NO_SERVICE)
            return
        found = found.model_copy(update={"service": service})
        arrived = arrival_time(message, time.time())
        (row,) = feedback_rows([found], None, math.inf if arrived is None else arrived, self._ahead)
        source = SourceOffset(self._epoch, message.partition, message.offset)
        data = encode_feedback(FeedbackRecord(row, source))
        try:
            await deliver(self._scores, service.encode("utf-8", "replace"), data)
        except MessageSizeTooLargeError:  # a topic with a limit of its own
            await self._send_dead_letter(
                event, "too_large", (("", "the labels are larger than a message"),)
            )
