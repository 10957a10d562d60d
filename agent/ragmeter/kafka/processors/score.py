"""The processors of the score group, which need no state.

`ScoreOwner` turns messages of the traces topic into records of the scores topic, one or a few a
service and batch; OTLP goes to the spans topic instead, where it becomes traces. The documents of
parts, some of which have a topic of their own, are sent on to the partition in which their service
is counted. Offsets are committed with what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import FUTURE_SECONDS
from ragmeter.core.counters import Counters
from ragmeter.core.isolation import is_item_fault
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace
from ragmeter.kafka.processors.delivery import (
    DeadLetterTopic,
    TracePreparer,
    without_body,
)
from ragmeter.kafka.processors.otlp import OtlpSplitter
from ragmeter.kafka.score_records import SOURCE_LABELS, ScoreRecord, SourceOffset, encode_scores
from ragmeter.kafka.scores_topic import encode_document
from ragmeter.kafka.span_records import MessageEncoding, message_encoding
from ragmeter.kafka.transactions import OutRecord, OwnerGroup, PartitionOwner, RecordsRefused
from ragmeter.kafka.wire import BadRecord, RecordTooLarge
from ragmeter.metrics.builtin import PreparedTrace
from ragmeter.parts.collection import PartKinds, document_kinds, document_topics
from ragmeter.scoring.inline_tiers import InlineTiers
from ragmeter.scoring.processes import ScoredBody
from ragmeter.scoring.scorer import CheapScores, TraceScores
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

_LOG_APPEND = 1  # timestamp type of a message that carries the broker's time
_GATHER_SECONDS = 0.1  # for a larger batch: a transaction costs what scoring some 20 traces does
_YIELD_SECONDS = 0.02  # of scoring at a time: heartbeats and scrapes share the loop
_SCORES_TOO_LARGE = DecodeFailure.of_whole("too_large", "its scores are larger than a message", b"")

Outcome = ScoreRecord | list[OutRecord]
"""What comes of a message."""

_Handled = Outcome | Coroutine[Any, Any, Outcome]
"""What comes of a message at once, or a coroutine where something must be waited for."""


class RecordOfMessages(NamedTuple):
    """A record to send, and the messages that it is made of."""

    record: OutRecord
    messages: Sequence[Any]


def arrival_time(message: Any, now: float) -> float | None:
    """Return when a message came to the broker, in Unix seconds, if the message says so.

    The broker's clock counts and not ours, so that a second scoring finds the same time. Where the
    time is the producer's, whose clock may be that of the trace, it is at most `now`.
    """
    if not message.timestamp:
        return None
    timestamp = float(message.timestamp / 1000)
    return timestamp if message.timestamp_type == _LOG_APPEND else min(timestamp, now)


def _decode(message: Any) -> Trace:
    item = decode_trace(message.value, len(message.value))
    if not isinstance(item, DecodedTrace):
        raise RuntimeError("not of the expected type")
    return item.trace


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

    async def score_ahead(self, messages: Sequence[Any]) -> list[ScoredBody | None]:
        """Have other processes score the messages that need nothing else before."""
        found: list[ScoredBody | None] = [None] * len(messages)
        if self._tiers.pool is None or self._preparer.edits:
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

    def handle(self, message: Any, scores: ScoredBody | None = None) -> _Handled:
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
        return self._draw(message, self._tiers.scorer.score_alone(trace), trace)

    def _draw(self, message: Any, scores: TraceScores, trace: Trace | None = None) -> _Handled:
        """Return the record of a trace, or a coroutine where a slow tier has drawn it."""
        sent_at = scores.summary.timestamp
        timestamp = self._limit_time(message, sent_at)
        if timestamp != sent_at:
            scores.summary = scores.summary._replace(timestamp=timestamp)
            self._counters.inc("ragmeter_clock_skew_total", SOURCE_LABELS)
        if trace is None:  # rarely wanted: another process has it
            scores.prepare = lambda: PreparedTrace(_decode(message))
        cheap = self._tiers.draw(scores)
        if not cheap.draws:
            return self._record(message, scores, cheap.trace)
        return self._finish(message, scores, trace or _decode(message), cheap)

    async def _finish(
        self, message: Any, scores: TraceScores, trace: Trace, cheap: CheapScores
    ) -> Outcome:
        return self._record(message, scores, await self._tiers.finish(trace, cheap))

    def _record(self, message: Any, scores: TraceScores, scored: ScoredTrace) -> Outcome:
        self._counters.inc("ragmeter_traces_received_total", SOURCE_LABELS)
        source = SourceOffset(message.partition, message.offset)
        scored = self._preparer.publishable(scored)
        load = (lambda: scores.prepare().trace) if self._outputs.on_results else None
        return ScoreRecord(scored, source, load)

    def publish(self, records: Sequence[ScoreRecord], sent: Iterable[OutRecord]) -> None:
        """Count dead letters among what was committed, and hand on scores.

        Once each, unless a producer has sent their trace twice.
        """
        for letter in sent:
            if letter.topic == self.dead.topic:
                reason = letter.headers["reason"].decode()
                self._counters.inc("ragmeter_dead_letters_total", (("reason", reason),))
        if self._outputs.on_results is not None:
            self._outputs.on_results([(one.load(), one.scored) for one in records if one.load])
        self._outputs.on_scores([one.scored for one in records])

    def encode(
        self, scored: Sequence[tuple[Any, ScoreRecord]], alone: Collection[int] = ()
    ) -> list[RecordOfMessages]:
        """Return the records of messages' traces, and letters of those that cannot be sent.

        Args:
            scored: The messages and what they scored.
            alone: Offsets of messages that share no record with others.
        """
        groups: dict[tuple[str, int | None], list[tuple[Any, ScoreRecord]]] = defaultdict(list)
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
                RecordOfMessages(OutRecord(self.scores_topic, data, key), messages)
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

    def bury(self, message: Any, records: Sequence[OutRecord], refused: int) -> list[OutRecord]:
        """Return what is sent instead of a message's records that topics have refused.

        That is its dead letter, which has no body from the second refusal on.
        """
        letters = [one for one in records if one.topic == self.dead.topic]
        if not letters:
            letters = self._letter(message, _SCORES_TOO_LARGE)
        elif refused == 1:
            refused += 1
        return letters if refused == 1 else list(map(without_body, letters))

    def _letter(self, message: Any, failure: DecodeFailure) -> list[OutRecord]:
        return [self.dead.of_message(message, failure, count=False)]  # `publish` does

    def _defect(self, message: Any, why: str) -> list[OutRecord]:
        return self._letter(message, DecodeFailure.of_whole("internal_error", why[:200], b""))


_Pair = tuple[Any, Outcome | asyncio.Task[Outcome]]
"""A message whose scoring has begun, and what comes of it."""


class ScoreOwner(PartitionOwner):
    """One partition of the topic of the traces, or of the feedback.

    Up to `kafka.in_flight` messages are under way: those of later batches are scored while an
    earlier one waits for a slow tier. Batches are committed in their order.
    """

    def __init__(self, processor: MessageProcessor, group: OwnerGroup, tp: TopicPartition) -> None:
        super().__init__(group, tp)
        self._processor = processor
        self.batch = min(self.batch, processor.in_flight)
        self._alone: set[int] = set()  # offsets of messages one of which has a record too large
        self._refused: Counter[int] = Counter()  # by offset: how often its records were too large
        self._running: list[list[_Pair]] = []  # batches
        self._scoring = False
        self._moved = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether messages are scored that are not committed."""
        return bool(self._running) or self._scoring

    async def open(self, offset: int | None) -> int | None:
        """Nothing to load: what is committed was sent on."""
        self._running = []
        self._scoring = False
        return offset

    async def work(self) -> None:
        """Score batches and commit them."""
        scoring = asyncio.create_task(self._score_all())
        committing = asyncio.create_task(self._commit_all())
        try:
            await asyncio.gather(scoring, committing)
        finally:
            tasks: list[asyncio.Task[Any]] = [scoring, committing]
            pairs = itertools.chain.from_iterable(self._running)
            tasks += [one for _, one in pairs if isinstance(one, asyncio.Task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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
            await asyncio.wait_for(self._moved.wait(), 1.0)

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

    async def _commit_all(self) -> None:
        while True:
            done = list(itertools.takewhile(_is_finished, self._running))
            if not done:
                await self._wait()
                continue
            await self._commit(list(itertools.chain.from_iterable(done)))
            self._alone.clear()
            self._refused.clear()
            del self._running[: len(done)]
            self._moved.set()

    async def _commit(self, pairs: Sequence[_Pair]) -> None:
        """Commit what comes of messages.

        A message whose record a topic refuses becomes a dead letter when the owner begins again:
        with its body, or without where that is too large as well. A record of several messages is
        parted first.
        """
        records: list[RecordOfMessages] = []
        scored: list[tuple[Any, ScoreRecord]] = []
        for message, outcome in pairs:
            try:
                result = outcome.result() if isinstance(outcome, asyncio.Task) else outcome
            except Exception as error:
                result = self._processor.give_up(message, error)
            refused = self._refused[message.offset]
            if isinstance(result, ScoreRecord):
                if not refused:
                    scored.append((message, result))
                    continue
                result = []
            if refused:
                result = self._processor.bury(message, result, refused)
            records += [RecordOfMessages(record, [message]) for record in result]
        records += self._processor.encode(scored, self._alone)
        sent = [one.record for one in records]
        try:
            await self.commit(sent, pairs[-1][0].offset + 1)
        except RecordsRefused as error:
            for number in error.numbers:
                offsets = [message.offset for message in records[number].messages]
                if len(offsets) > 1:
                    self._alone.update(offsets)
                else:
                    self._refused[offsets[0]] += 1
            raise
        self._processor.publish([record for _, record in scored], sent)


def _is_finished(batch: Sequence[_Pair]) -> bool:
    return all(not isinstance(one, asyncio.Task) or one.done() for _, one in batch)
