"""Feedback from its topic to the partition that its service is counted in.

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

from agent.counters import Counters
from agent.ingest.feedback import INVALID, decode_one
from agent.ingest.native import Bad
from agent.kafka.messages.feedback_records import FeedbackRecord, encode_feedback
from agent.kafka.messages.source import Source
from agent.kafka.stages.acked_stage import AckedStage, arrival_of
from agent.kafka.stages.sending import DeadTopic, deliver
from agent.labelling.intake import rows_of
from agent.settings import Settings

__all__ = ["NO_SERVICE", "FeedbackStage"]

NO_SERVICE = (
    ("service", "is needed over Kafka, or kafka.feedback_service for feedback that names none"),
)


class FeedbackStage(AckedStage):
    """Every message ends in exactly one of these: a record in the topic of the scores, or a dead
    letter. Either is delivered before it is acknowledged."""

    def __init__(
        self,
        settings: Settings,
        scores: TopicT,
        dead: DeadTopic,
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
        found = decode_one(message.value or b"")
        if isinstance(found, Bad):
            await self._bury(event, found.reason, found.errors)
            return
        service = found.service or self._service
        if service is None:
            await self._bury(event, INVALID, NO_SERVICE)
            return
        found = found.model_copy(update={"service": service})
        arrived = arrival_of(message, time.time())
        (row,) = rows_of([found], None, math.inf if arrived is None else arrived, self._ahead)
        source = Source(self._epoch, message.partition, message.offset)
        data = encode_feedback(FeedbackRecord(row, source))
        try:
            await deliver(self._scores, service.encode("utf-8", "replace"), data)
        except MessageSizeTooLargeError:  # a topic with a limit of its own
            await self._bury(event, "too_large", (("", "the labels are larger than a message"),))
