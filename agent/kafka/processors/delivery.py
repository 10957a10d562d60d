"""Redact and resolve traces before they are scored, and deliver records and dead letters to topics.

Between reading a trace and scoring it, as in the embedded agent: redaction, the texts of
passages that came as ids alone, and redaction of what a resolver gave.

The embedded agent keeps what came out of this. Here the trace stays in its topic as it was sent, so
whoever reads it there again (`ragmeter.kafka.jobs`) goes the same way.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

import faust
from aiokafka.errors import MessageSizeTooLargeError
from faust.exceptions import ProducerSendError
from faust.types import EventT, RecordMetadata, TopicT

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, Counts
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import strip_error_text
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.passage_resolver import PassageResolver, needs_passage_texts
from ragmeter.ingest.redaction import Redactor
from ragmeter.kafka.span_records import ENCODING_HEADER
from ragmeter.sampling.control import VERSION_TAGS
from ragmeter.trace import Trace

_RESOLVE_SECONDS = 10.0
"""For all passages of a trace. A source has a limit of its own for each text; here a trace is under
way meanwhile, and a rebalance waits for it and for the slow tiers behind (20 s)."""


class TracePreparer:
    """To be closed. `counters` get what was redacted and looked up."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        *,
        resolver: PassageResolver | None = None,
        seconds: float = _RESOLVE_SECONDS,
    ) -> None:
        self.redactor = Redactor(settings.privacy)
        self.content = ContentPolicy(settings.privacy)
        self._counters = counters
        self._resolvers = settings.resolvers
        self._limit = settings.limits.trace_bytes
        self._tags = {*settings.segments, *VERSION_TAGS}
        self._seconds = seconds
        wanted = bool(settings.resolvers.sources)
        self._resolver = resolver or (PassageResolver(settings.resolvers) if wanted else None)

    async def __aenter__(self) -> TracePreparer:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._resolver is not None:
            await self._resolver.close()

    async def prepare(self, good: DecodedTrace, *, again: bool = False) -> Trace:
        """The trace as it may be scored and shown; `again`: its redactions were counted before."""
        trace = await self._redacted(good, again)
        resolver = self._resolver
        if resolver is None or not needs_passage_texts(self._resolvers, trace):
            return trace
        try:
            async with asyncio.timeout(self._seconds):
                found = await resolver.resolve(trace)
        except TimeoutError:
            return _without(trace, "resolver_timeout")
        finally:
            self._add(resolver.counts())
        if found is trace:
            return trace
        found = await self._redacted(DecodedTrace(found, b""), again)
        if len(found.model_dump_json(exclude_none=True).encode("utf-8", "replace")) > self._limit:
            # more text than a trace may have: as if it could not be had
            return _without(trace, "resolver_error")
        return found

    async def _redacted(self, good: DecodedTrace, again: bool) -> Trace:
        if not self.redactor.edits:
            return good.trace
        counts: Counts = {}
        # in a thread: a text that a pattern is slow on must not hold up everything else
        done = await asyncio.to_thread(self.redactor.trace, good, counts)
        if not again:
            self._add(counts)
        return done.trace

    def _add(self, counts: Counts) -> None:
        for (name, labels), by in counts.items():
            self._counters.inc(name, labels, by)

    def publishable(self, scored: ScoredTrace) -> ScoredTrace:
        """What may cross the topic of the scores, which keeps it for days: without quotes where
        texts are not kept, and of the tags only those that something is counted by."""
        if self.content.full:
            return scored
        tags = {name: text for name, text in scored.tags.items() if name in self._tags}
        return self.content.scored(replace(scored, tags=tags))

    @property
    def keeps_raw(self) -> bool:
        """Whether what cannot be read may be kept as it came: it cannot be redacted for sure."""
        return self.content.full and not self.redactor.edits


def _without(trace: Trace, reason: str) -> Trace:
    return trace.model_copy(update={"missing": {**trace.missing, "passages": reason}})


log = logging.getLogger("ragmeter.kafka")

_MAX_ERROR = 500  # bytes of a header
EMPTY_BODY = b""  # aiokafka sends no record without a key and a value


class RawTopic(faust.Topic):
    """Of bytes. Sends at once: what Faust does around a send costs more than the send."""

    async def send(  # type: ignore[override]
        self,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> Awaitable[RecordMetadata]:
        producer = await self._get_producer()
        name = self.get_topic_name()
        return await producer.send(name, key, value, partition, None, dict(headers or {}))


def raw_topic(app: faust.App, name: str) -> TopicT:
    """Keys and values as bytes: a typed topic acknowledges what it cannot decode."""
    return app.topic(
        name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )


async def deliver(
    topic: TopicT,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, bytes] | None = None,
    partition: int | None = None,
) -> None:
    """Returns when all replicas in sync have it; raises what the producer does."""
    try:
        sent = await topic.send(
            key=key, value=value, headers=dict(headers or {}), partition=partition
        )
    except ProducerSendError as error:
        # what is too large for the client itself is wrapped, what is for the broker is not
        if isinstance(error.__cause__, MessageSizeTooLargeError):
            raise error.__cause__ from None
        raise
    await sent


class DeadLetterTopic:
    """Messages that cannot be read go there as they came, with headers that say why and whence.

    Under any setting of privacy (`preparing`) only the headers do, as in the file of the embedded
    agent: what cannot be read cannot be redacted for sure, and this topic is kept for longer.
    """

    def __init__(self, topic: TopicT, preparing: TracePreparer) -> None:
        self._topic = topic
        self._preparing = preparing

    async def send(
        self, event: EventT[Any], reason: str, errors: tuple[tuple[str, str], ...]
    ) -> None:
        message = event.message
        said = {
            "topic": message.topic.encode(),
            "partition": b"%d" % message.partition,
            "offset": b"%d" % message.offset,
            # of the delivery to this topic: `ragmeter kafka redrive` counts on
            "attempt": _attempt(message.headers),
        }
        if ENCODING_HEADER in (found := dict(message.headers or ())):
            said[ENCODING_HEADER] = found[ENCODING_HEADER]
        await self.put(message.key, message.value, reason, errors, said)

    async def put(
        self,
        key: bytes | None,
        value: bytes | None,
        reason: str,
        errors: tuple[tuple[str, str], ...],
        said: Mapping[str, bytes],
    ) -> None:
        """The same for what is no message of its own; `said` are headers."""
        text = json.dumps(
            strip_error_text(errors, self._preparing.redactor, self._preparing.content)
        )
        headers = {
            "reason": reason.encode(),
            "error": text.encode("utf-8", "replace")[:_MAX_ERROR],
            **said,
        }
        try:
            if self._preparing.keeps_raw:
                await deliver(self._topic, key, value, headers)
            else:
                await deliver(self._topic, None, EMPTY_BODY, {**headers, "truncated": b"1"})
        except MessageSizeTooLargeError:
            # it must not stop the partition for ever: where it lies is said
            await deliver(self._topic, None, EMPTY_BODY, {**headers, "truncated": b"1"})
        where = b"/".join(said[name] for name in ("topic", "partition", "offset")).decode()
        log.warning("%s is a dead letter: %s", where, reason)


def _attempt(headers: Any) -> bytes:
    found = dict(headers or {}).get("attempt", b"0")
    try:
        return b"%d" % (int(found) + 1)
    except (TypeError, ValueError):
        return b"1"
