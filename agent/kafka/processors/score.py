"""Processors of traces and feedback messages.

Each message becomes a record of the scores topic or a dead letter, delivered before the message is
acknowledged. The spans of an OTLP message go to the spans topic instead, where they become traces.
"""

from __future__ import annotations

import math
import time
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError
from faust.types import EventT, TopicT

from ragmeter.aggregate.feedback_join import ranked_passage_keys
from ragmeter.aggregate.index_events import decode_index_event, is_index_event
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.embedded.intake import feedback_rows
from ragmeter.ingest.files import INVALID, decode_feedback
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.kafka.processors.acknowledged import AckedProcessor, arrival_time
from ragmeter.kafka.processors.delivery import ProcessorContext, TracePreparer
from ragmeter.kafka.processors.otlp import OtlpSplitter, UnusableMessage
from ragmeter.kafka.processors.slow_tiers import InlineTiers
from ragmeter.kafka.score_records import (
    SOURCE_LABELS,
    FeedbackRecord,
    RecordTooLarge,
    ScoreRecord,
    SourceOffset,
    encode_feedback,
    encode_index,
    encode_score,
)
from ragmeter.kafka.span_records import MessageEncoding, message_encoding

_SCORES_TOO_LARGE = "its scores are larger than a message"
_NO_SERVICE = (
    ("service", "is needed over Kafka, or kafka.feedback_service for feedback that names none"),
)


class ScoreProcessor(AckedProcessor):
    """Scores native traces, forwards index events, and splits OTLP messages.

    `otlp` is None where `kafka.traces_encoding` allows native traces only.
    """

    def __init__(
        self,
        context: ProcessorContext,
        scores: TopicT,
        preparer: TracePreparer,
        tiers: InlineTiers,
        otlp: OtlpSplitter | None = None,
    ) -> None:
        super().__init__(context)
        self._scores = scores
        self._preparer = preparer
        self._tiers = tiers
        self._otlp = otlp
        self._wordings = WordingBuilder(self._settings.consistency, self._settings.privacy)

    async def _handle(self, event: EventT[Any]) -> None:
        message, kafka = event.message, self._settings.kafka
        value: bytes = message.value or b""
        source = SourceOffset(kafka.traces_epoch, message.partition, message.offset)
        if self._otlp is not None:
            encoding = message_encoding(value, message.headers, kafka.traces_encoding)
            if encoding is not MessageEncoding.NATIVE:
                try:
                    await self._otlp.split_request(value, encoding, source)
                except UnusableMessage as error:
                    await self._send_dead_letter(event, error.reason, (("", str(error)),))
                except MessageSizeTooLargeError:  # the topic was not made by `ragmeter kafka init`
                    errors = (("", "a span is larger than a message"),)
                    await self._send_dead_letter(event, "too_large", errors)
                return
        if is_index_event(value):
            await self._forward_index_event(event, value)
            return
        item = decode_trace(value, self._settings.limits.trace_bytes)
        if isinstance(item, DecodeFailure):
            await self._send_dead_letter(event, item.reason, item.errors)
            return
        trace = await self._preparer.prepare(item)
        sent_at = trace.timestamp.timestamp()
        timestamp = self._limit_time(message, sent_at)
        if timestamp != sent_at:
            self._counters.inc("ragmeter_clock_skew_total", SOURCE_LABELS)
        scored = await self._tiers.score_trace(trace, timestamp)
        scored = scored.with_wording(self._wordings.of(trace))
        try:
            keys = ranked_passage_keys(trace) if self._settings.feedback.traces else None
            data = encode_score(ScoreRecord(self._preparer.publishable(scored), source, keys))
        except RecordTooLarge:
            await self._send_dead_letter(event, "too_large", (("", _SCORES_TOO_LARGE),))
        except ValueError as error:  # a defect of ours that this trace has revealed
            await self._send_dead_letter(event, "internal_error", (("", repr(error)[:200]),))
        else:
            if await self._deliver(event, self._scores, trace.service, data, _SCORES_TOO_LARGE):
                self._counters.inc("ragmeter_traces_received_total", SOURCE_LABELS)

    async def _forward_index_event(self, event: EventT[Any], value: bytes) -> None:
        """Send on an index event; its id makes it count once wherever it was read."""
        decoded = decode_index_event(value)
        if isinstance(decoded, DecodeFailure):
            await self._send_dead_letter(event, decoded.reason, decoded.errors)
            return
        at = self._limit_time(event.message, decoded.timestamp.timestamp())
        too_large = "the event is larger than a message"
        await self._deliver(
            event, self._scores, decoded.service, encode_index(value, at), too_large
        )


class FeedbackProcessor(AckedProcessor):
    """Forwards feedback to the partition of the scores topic in which its service is counted.

    So the state of a service has one writer. Feedback over Kafka must name its service: a trace id
    alone does not tell where its trace was counted.
    """

    def __init__(self, context: ProcessorContext, scores: TopicT) -> None:
        super().__init__(context)
        self._scores = scores

    async def _handle(self, event: EventT[Any]) -> None:
        message, kafka = event.message, self._settings.kafka
        feedback = decode_feedback(message.value or b"")
        if isinstance(feedback, DecodeFailure):
            await self._send_dead_letter(event, feedback.reason, feedback.errors)
            return
        service = feedback.service or kafka.feedback_service
        if service is None:
            await self._send_dead_letter(event, INVALID, _NO_SERVICE)
            return
        feedback = feedback.model_copy(update={"service": service})
        arrived = arrival_time(message, time.time())
        ahead = self._settings.limits.future_seconds
        (row,) = feedback_rows([feedback], None, math.inf if arrived is None else arrived, ahead)
        source = SourceOffset(kafka.feedback_epoch, message.partition, message.offset)
        data = encode_feedback(FeedbackRecord(row, source))
        too_large = "the labels are larger than a message"
        await self._deliver(event, self._scores, service, data, too_large)
