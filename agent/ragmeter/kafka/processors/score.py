"""The processors of the score group, which need no state.

`ScoreOwner` turns messages of the traces topic into records of the scores topic, one or a few a
service and batch; OTLP goes to the spans topic instead, where it becomes traces. The documents of
parts, some of which have a topic of their own, are sent on to the partition in which their service
is counted. An offset is committed when all that comes of the messages before it is acknowledged;
what is sent again after a failure is recognised where it is counted (`ragmeter.kafka.origins`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import FUTURE_SECONDS
from ragmeter.core.counters import Counters
from ragmeter.core.isolation import is_item_fault
from ragmeter.core.process import end_tasks
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace
from ragmeter.kafka.origins import ORIGIN_HEADER, Origin, new_epoch
from ragmeter.kafka.owners import BeginAgain, KnownOffsets, OutRecord, PartitionOwner
from ragmeter.kafka.processors.delivery import (
    DeadLetterTopic,
    TracePreparer,
    without_body,
)
from ragmeter.kafka.processors.otlp import OtlpSplitter
from ragmeter.kafka.score_group import ScoreGroup
from ragmeter.kafka.score_records import SOURCE_LABELS, ScoreRecord, SourceOffset, encode_scores
from ragmeter.kafka.scores_topic import encode_document
from ragmeter.kafka.span_records import MessageEncoding, message_encoding
from ragmeter.kafka.wire import BadRecord, RecordTooLarge
from ragmeter.parts.collection import PartKinds, document_kinds, document_topics
from ragmeter.scoring.inline_tiers import InlineTiers
from ragmeter.scoring.scorer import CheapScores, TraceScores
from ragmeter.scoring.threads import ScoredSource
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

_LOG_APPEND = 1  # timestamp type of a message that carries the broker's time
_GATHER_SECONDS = 0.1  # for a larger batch: the fewer records, the fewer bytes a trace
_YIELD_SECONDS = 0.02  # of scoring at a time: heartbeats and scrapes share the loop
_SCORES_TOO_LARGE = DecodeFailure.of_whole("too_large", "its scores are larger than a message", b"")

Outcome = ScoreRecord | list[OutRecord]
"""What comes of a message."""

_Handled = Outcome | Coroutine[Any, Any, Outcome]
"""What comes of a message at once, or a coroutine where something must be waited for."""


_Scored = tuple[Any, ScoreRecord]
"""A message and what it scored."""


class RecordOfMessages(NamedTuple):
    """A record to send.

    Args:
        record: The record.
        messages: Those that it is made of.
        part: The number of the record among those of its message.
        scored: What the messages scored, in a record of scores.
    """

    record: OutRecord
    messages: Sequence[Any]
    part: int = 0
    scored: Sequence[_Scored] = ()


def arrival_time(message: Any, now: float) -> float | None:
    """Return when a message came to the broker, in Unix seconds, if the message says so.

    The broker's clock counts and not ours, so that a second scoring finds the same time. Where the
    time is the producer's, whose clock may be that of the trace, it is at most `now`.
    """
    if not message.timestamp:
        return None
    timestamp = float(message.timestamp / 1000)
    return timestamp if message.timestamp_type == _LOG_APPEND else min(timestamp, now)


class MessageProcessor:
    """What comes of a message, by the settings; `handle` is all that owners ask.

    `otlp` is None where `kafka.traces_encoding` allows native traces only.
    """

    def __init__(
        self,
        settings: Settings,
        dead: DeadLetterTopic,
        counters: Counters,
        preparer: TracePreparer,
        tiers: InlineTiers,
        otlp: OtlpSplitter | None = None,
        outputs: AgentOutputs = AgentOutputs(),  # noqa: B008
        parts: PartKinds = (),
    ) -> None:
        self._outputs = outputs
        self._kinds = document_kinds(parts, settings)
        self._mixed = {name: kind for name, kind in self._kinds.items() if not kind.topic}
        self._topics = document_topics(parts, settings)
        self.scores_topic = settings.kafka.topics.scores
        self.in_flight = settings.kafka.in_flight
        self.dead = dead
        self._settings = settings
        self._counters = counters
        self._preparer = preparer
        self._tiers = tiers
        self._otlp = otlp

    async def score_ahead(self, messages: Sequence[Any]) -> list[ScoredSource | None]:
        """Have other threads score the messages that need nothing else before."""
        found: list[ScoredSource | None] = [None] * len(messages)
        if self._tiers.ahead is None or self._preparer.edits:
            return found
        plain = [number for number, one in enumerate(messages) if self._is_plain(one)]
        scored = await self._tiers.score_bodies([messages[number].value or b"" for number in plain])
        for number, scores in zip(plain, scored, strict=True):
            found[number] = scores
        return found

    def _is_plain(self, message: Any) -> bool:
        value = message.value or b""
        return (
            message.topic not in self._topics
            and self._encoding(message) is MessageEncoding.NATIVE
            and len(value) <= self._settings.limits.trace_bytes
            and not any(kind.may_match(value) for kind in self._mixed.values())
        )

    def _encoding(self, message: Any) -> MessageEncoding:
        if self._otlp is None:
            return MessageEncoding.NATIVE
        configured = self._settings.kafka.traces_encoding
        return message_encoding(message.value or b"", message.headers, configured)

    def handle(self, message: Any, scores: ScoredSource | None = None) -> _Handled:
        """Return what comes of a message; `scores` are of `score_ahead`."""
        value = message.value or b""
        if isinstance(scores, TraceScores):
            return self._draw(message, scores)
        if isinstance(scores, DecodeFailure):
            return self._letter(message, scores)
        if scores is not None:
            return self._defect(message, scores.why)
        if part := self._topics.get(message.topic):
            return self._forward_document(message, part)
        encoding = self._encoding(message)
        if encoding is not MessageEncoding.NATIVE:
            return self._split(message, encoding)
        if part := self._document_part(value):
            return self._forward_document(message, part)
        item = decode_trace(value, self._settings.limits.trace_bytes)
        if isinstance(item, DecodeFailure):
            return self._letter(message, item)
        if not self._preparer.is_prepared(item.trace):
            return self._prepare_and_score(message, item)
        return self._score(message, item.trace)

    async def _split(self, message: Any, encoding: MessageEncoding) -> Outcome:
        if self._otlp is None:
            raise RuntimeError("otlp is missing")
        found = await self._otlp.split_request(message.value or b"", encoding)
        return self._letter(message, found) if isinstance(found, DecodeFailure) else found

    async def _prepare_and_score(self, message: Any, item: DecodedTrace) -> Outcome:
        scored = self._score(message, await self._preparer.prepare(item))
        return await scored if asyncio.iscoroutine(scored) else scored

    def _score(self, message: Any, trace: Trace) -> _Handled:
        return self._draw(message, self._tiers.scorer.score_alone(trace))

    def _draw(self, message: Any, scores: TraceScores) -> _Handled:
        """Return the record of a trace, or a coroutine where a slow tier has drawn it."""
        sent_at = scores.summary.timestamp
        timestamp = self._limit_time(message, sent_at)
        if timestamp != sent_at:
            scores.summary = scores.summary._replace(timestamp=timestamp)
            self._counters.inc("ragmeter_clock_skew_total", SOURCE_LABELS)
        cheap = self._tiers.draw(scores)
        if not cheap.draws:
            return self._record(message, scores, cheap.trace)
        return self._finish(message, scores, cheap)

    async def _finish(self, message: Any, scores: TraceScores, cheap: CheapScores) -> Outcome:
        return self._record(message, scores, await self._tiers.finish(scores.prepared.trace, cheap))

    def _record(self, message: Any, scores: TraceScores, scored: ScoredTrace) -> Outcome:
        self._counters.inc("ragmeter_traces_received_total", SOURCE_LABELS)
        source = SourceOffset(message.partition, message.offset)
        scored = self._preparer.publishable(scored)
        trace = scores.prepared.trace if self._outputs.on_results else None
        return ScoreRecord(scored, source, trace)

    def is_letter(self, record: OutRecord) -> bool:
        """Return whether a record is a dead letter."""
        return record.topic == self.dead.topic

    def publish(self, records: Sequence[ScoreRecord], sent: Iterable[OutRecord]) -> None:
        """Count dead letters among what was acknowledged, and hand on scores.

        Once each, unless a producer has sent their trace twice.
        """
        for letter in sent:
            if self.is_letter(letter):
                reason = letter.headers["reason"].decode()
                self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))
        if self._outputs.on_results is not None:
            self._outputs.on_results([(one.trace, one.scored) for one in records if one.trace])
        self._outputs.on_scores([one.scored for one in records])

    def encode(
        self, scored: Sequence[_Scored], alone: Collection[int] = ()
    ) -> list[RecordOfMessages]:
        """Return the records of messages' traces, and letters of those that cannot be sent.

        Args:
            scored: The messages and what they scored.
            alone: Offsets of messages that share no record with others.
        """
        groups: dict[tuple[str, int | None], list[_Scored]] = defaultdict(list)
        for message, record in scored:
            own = message.offset if message.offset in alone else None
            groups[record.scored.service, own].append((message, record))
        found: list[RecordOfMessages] = []
        for (service, _), group in groups.items():
            messages = [message for message, _ in group]
            try:
                encoded = encode_scores([record for _, record in group])
            except BadRecord as error:
                if len(group) > 1:  # one of them: the others go without it
                    found += self.encode(group, {message.offset for message in messages})
                    continue
                if isinstance(error, RecordTooLarge):
                    letters = self._letter(messages[0], _SCORES_TOO_LARGE)
                else:  # a defect of ours that this trace has revealed
                    letters = self._defect(messages[0], repr(error))
                found += [RecordOfMessages(letter, messages) for letter in letters]
                continue
            key = service.encode("utf-8", "replace")
            found += [
                RecordOfMessages(OutRecord(self.scores_topic, data, key), messages, scored=group)
                for data in encoded
            ]
        return found

    def _document_part(self, value: bytes) -> str | None:
        """Return the name of the part that reads a message, None for a trace."""
        return next((name for name, kind in self._mixed.items() if kind.matches(value)), None)

    def _forward_document(self, message: Any, part: str) -> Outcome:
        """Send on a document; its part counts it once wherever it was read."""
        kind = self._kinds[part]
        value = message.value or b""
        decoded = kind.decode(value)
        if isinstance(decoded, DecodeFailure):
            return self._letter(message, decoded)
        if kind.encode_sent is not None:
            sent = kind.encode_sent(decoded)
            if isinstance(sent, DecodeFailure):
                return self._letter(message, sent)
            value = sent
        service = decoded.service or ""
        at = self._limit_time(message, decoded.timestamp.timestamp())
        data = encode_document(part, value, at)
        return [OutRecord(self.scores_topic, data, service.encode("utf-8", "replace"))]

    def _limit_time(self, message: Any, timestamp: float) -> float:
        """Replace a timestamp that lies too far after the arrival by the time of arrival."""
        arrived = arrival_time(message, time.time())
        if arrived is None or timestamp <= arrived + FUTURE_SECONDS:
            return timestamp
        return arrived

    def give_up(self, message: Any, error: Exception) -> Outcome:
        """Return the letter of a message that fails for a defect of ours; raise other errors."""
        if not is_item_fault(error):
            raise error
        log.exception("a message cannot be processed", exc_info=error)
        return self._defect(message, repr(error))

    def replace(self, refused: Sequence[RecordOfMessages]) -> list[RecordOfMessages]:
        """Return what is sent instead of records that topics have refused as too large."""
        found: list[RecordOfMessages] = []
        buried: set[int] = set()
        for one in refused:
            message = one.messages[0]
            if len(one.messages) > 1:
                found += self.encode(one.scored, {message.offset for message in one.messages})
            elif not self.is_letter(one.record):
                if message.offset not in buried:
                    letters = self._letter(message, _SCORES_TOO_LARGE)
                    found += [RecordOfMessages(letter, [message]) for letter in letters]
                buried.add(message.offset)
            elif one.record.value:
                found.append(one._replace(record=without_body(one.record)))
            else:
                raise BeginAgain("a dead letter without a body is refused as too large")
        return found

    def _letter(self, message: Any, failure: DecodeFailure) -> list[OutRecord]:
        return [self.dead.of_message(message, failure, count=False)]  # `publish` does

    def _defect(self, message: Any, why: str) -> list[OutRecord]:
        return self._letter(message, DecodeFailure.of_whole("internal_error", why[:200], b""))


_Pair = tuple[Any, Outcome | asyncio.Task[Outcome]]
"""A message whose scoring has begun, and what comes of it."""


class ScoreOwner(PartitionOwner):
    """One partition of the topic of the traces, or of documents.

    Up to `kafka.in_flight` messages are under way: those of later batches are scored while an
    earlier one waits for a slow tier. Batches are sent in their order, each when the one before is
    acknowledged.
    """

    group: ScoreGroup

    def __init__(self, processor: MessageProcessor, group: ScoreGroup, tp: TopicPartition) -> None:
        super().__init__(group, tp)
        self._processor = processor
        self.batch = min(self.batch, processor.in_flight)
        self._epoch = 0
        self._running: list[list[_Pair]] = []  # batches
        self._scoring = False
        self._moved = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether messages are scored whose records are not acknowledged."""
        return bool(self._running) or self._scoring

    @property
    def note(self) -> str:
        """The epoch of the reading."""
        return str(self._epoch)

    async def open(self, offsets: KnownOffsets) -> int | None:
        """Nothing to load: what is committed was sent on.

        An offset without an epoch is new, or somebody has moved it.
        """
        self._running = []
        self._scoring = False
        self._epoch = int(offsets.note) if offsets.note.isdecimal() else new_epoch()
        return offsets.committed

    def replace_lost_offset(self, position: int, offsets: KnownOffsets) -> int:
        """Read the topic again, in a later epoch."""
        self._epoch = new_epoch(self._epoch)
        return super().replace_lost_offset(position, offsets)

    async def commit(self, records: Iterable[OutRecord], position: int) -> None:
        """Commit the position at which the owner begins; later ones the group commits."""
        if not await self.group.commit(self.tp, position, self.note):
            raise BeginAgain("the group rebalances")
        self.advance(position)

    async def work(self) -> None:
        """Score batches and send what comes of them."""
        scoring = asyncio.create_task(self._score_all())
        sending = asyncio.create_task(self._send_all())
        try:
            await asyncio.gather(scoring, sending)
        finally:
            tasks: list[asyncio.Task[Any]] = [scoring, sending]
            pairs = itertools.chain.from_iterable(self._running)
            tasks += [one for _, one in pairs if isinstance(one, asyncio.Task)]
            await end_tasks(tasks)

    async def _score_all(self) -> None:
        while True:
            while sum(map(len, self._running)) >= self._processor.in_flight:
                await self._wait()
            messages = await self.take(None, _GATHER_SECONDS)
            if not messages:
                return  # it drains
            self._scoring = True
            self._running.append(await self._start_batch(messages))
            self._scoring = False
            self._moved.set()

    async def _wait(self) -> None:
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._moved.wait()

    async def _start_batch(self, messages: list[Any]) -> list[_Pair]:
        pairs: list[_Pair] = []
        ahead = await self._processor.score_ahead(messages)
        since = time.monotonic()
        for message, scores in zip(messages, ahead, strict=True):
            try:
                outcome = self._processor.handle(message, scores)
            except Exception as error:
                outcome = self._processor.give_up(message, error)
            if asyncio.iscoroutine(outcome):
                task = asyncio.create_task(outcome)
                task.add_done_callback(lambda _: self._moved.set())
                pairs.append((message, task))
            else:
                pairs.append((message, outcome))
            if time.monotonic() - since > _YIELD_SECONDS:
                await asyncio.sleep(0)
                since = time.monotonic()
        return pairs

    async def _send_all(self) -> None:
        while True:
            done = list(itertools.takewhile(_is_finished, self._running))
            if not done:
                await self._wait()
                continue
            await self._send(list(itertools.chain.from_iterable(done)))
            del self._running[: len(done)]
            self._moved.set()

    async def _send(self, pairs: Sequence[_Pair]) -> None:
        """Send what comes of messages, until all of it is acknowledged.

        Records that a topic refuses are replaced: one of several messages by one for each of them,
        one of a single message by its dead letter.
        """
        records: list[RecordOfMessages] = []
        scored: list[_Scored] = []
        for message, outcome in pairs:
            try:
                result = outcome.result() if isinstance(outcome, asyncio.Task) else outcome
            except Exception as error:
                result = self._processor.give_up(message, error)
            if isinstance(result, ScoreRecord):
                scored.append((message, result))
            else:
                records += [
                    RecordOfMessages(record, [message], part) for part, record in enumerate(result)
                ]
        records += self._processor.encode(scored)
        sent: list[OutRecord] = []
        while records:
            refused = await self.group.send([self._with_origin(one) for one in records])
            sent += [one.record for number, one in enumerate(records) if number not in refused]
            records = self._processor.replace([records[number] for number in sorted(refused)])
        self.advance(pairs[-1][0].offset + 1)
        buried = {letter.headers["offset"] for letter in sent if self._processor.is_letter(letter)}
        self._processor.publish(
            [one for message, one in scored if b"%d" % message.offset not in buried], sent
        )

    def _with_origin(self, one: RecordOfMessages) -> OutRecord:
        record = one.record
        if self._processor.is_letter(record):
            return record
        origin = Origin(
            topic=self.tp.topic,
            partition=self.tp.partition,
            epoch=self._epoch,
            first=self.position,
            offset=one.messages[0].offset,
            part=one.part,
        )
        return record._replace(headers={**record.headers, ORIGIN_HEADER: origin.encode()})


def _is_finished(batch: Sequence[_Pair]) -> bool:
    return all(not isinstance(one, asyncio.Task) or one.done() for _, one in batch)
