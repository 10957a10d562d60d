"""Dead letters, and the preparation of traces before scoring."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aiokafka.partitioner import murmur2

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, Counts
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import strip_error_text
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.passage_resolver import (
    PassageResolver,
    needs_passage_texts,
    without_texts,
)
from ragmeter.ingest.redaction import Redactor
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.span_records import ENCODING_HEADER
from ragmeter.reasons import Reason
from ragmeter.sampling.control import VERSION_TAGS
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# For all passages of a trace. A source has a limit of its own for each text; here a trace is under
# way meanwhile, and a rebalance waits for it and for the slow tiers behind (20 s).
_RESOLVE_SECONDS = 10.0
_MAX_ERROR = 500  # bytes of a header


class TracePreparer:
    """Redaction and passage lookup between reading a trace and scoring it.

    The trace stays in its topic as it was sent, so whoever reads it there again
    (`ragmeter.kafka.evidence_fetcher`) prepares it again. `counters` count redactions and lookups;
    `seconds` bounds the lookup of all passages of a trace. Use it as a context manager.

    Attributes:
        limit: Bytes of the largest trace.
    """

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
        self.limit = settings.limits.trace_bytes
        self._tags = {*settings.segments, *VERSION_TAGS}
        self._seconds = seconds
        wanted = bool(settings.resolvers.sources)
        self._resolver = resolver or (PassageResolver(settings.resolvers) if wanted else None)

    async def __aenter__(self) -> TracePreparer:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._resolver is not None:
            await self._resolver.close()

    @property
    def edits(self) -> bool:
        """Whether any trace may need preparation."""
        return self._resolver is not None or self.redactor.edits

    def is_prepared(self, trace: Trace) -> bool:
        """Return whether a trace may be scored as it is."""
        needs = self._resolver is not None and needs_passage_texts(self._resolvers, trace)
        return not self.redactor.edits and not needs

    async def prepare(self, item: DecodedTrace, *, again: bool = False) -> Trace:
        """Return the trace as it may be scored and shown; `again` counts no redactions twice."""
        trace = await self._redact(item, again)
        resolver = self._resolver
        if resolver is None or not needs_passage_texts(self._resolvers, trace):
            return trace
        try:
            async with asyncio.timeout(self._seconds):
                limit = self.limit
                count = not again
                return await resolver.resolve_redacted(trace, self.redactor, limit, count=count)
        except TimeoutError:
            return without_texts(trace, Reason.RESOLVER_TIMEOUT)
        finally:
            self._count(resolver.counts())

    async def _redact(self, item: DecodedTrace, again: bool) -> Trace:
        if not self.redactor.edits:
            return item.trace
        counts: Counts = {}
        # in a thread: a text that a pattern is slow on must not hold up everything else
        redacted = await asyncio.to_thread(self.redactor.trace, item, counts)
        if not again:
            self._count(counts)
        return redacted.trace

    def _count(self, counts: Counts) -> None:
        for (name, labels), by in counts.items():
            self._counters.inc(name, labels, by)

    def publishable(self, scored: ScoredTrace) -> ScoredTrace:
        """Return what may cross the topic of the scores, which keeps it for days.

        Where texts are not kept, quotes go, and of the tags all that nothing is counted by.
        """
        if self.content.full:
            return scored
        tags = {name: text for name, text in scored.tags.items() if name in self._tags}
        return self.content.scored(scored._replace(tags=tags))

    @property
    def keeps_raw(self) -> bool:
        """Whether an unreadable message may be kept as it came: it cannot be redacted for sure."""
        return self.content.full and not self.redactor.edits


# Of a schema registry before a value: a zero, and the id of the schema.
_FRAMING_BYTES = 5


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's own clients choose for a key."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


def describe_framing(value: bytes) -> str:
    """Say what to do about a message in the framing of a schema registry, or return "".

    A serializer of Confluent's puts a zero byte and the id of a schema (four bytes) before each
    value. No trace and no OTLP request begins with a zero byte. The rest is not read even where it
    is JSON: a message is read again from its topic, by `redrive` and by others, as it lies there.
    """
    if len(value) <= _FRAMING_BYTES or value[0] != 0:
        return ""
    schema = int.from_bytes(value[1:_FRAMING_BYTES], "big")
    kind = "JSON" if value[_FRAMING_BYTES:].lstrip()[:1] == b"{" else "Avro or Protobuf"
    return (
        f"looks like Confluent schema-registry framing, schema id {schema}, {kind}: produce plain"
        " JSON or OTLP, without the registry's serializer (value.serializer)"
    )


class DeadLetterTopic:
    """Makes the records of messages that cannot be read, with headers that name cause and source.

    Under any setting of privacy only the headers are sent, as in the file of the embedded agent:
    an unreadable message cannot be redacted for sure, and this topic is kept for longer.
    """

    def __init__(self, topic: str, preparer: TracePreparer, counters: Counters) -> None:
        self.topic = topic
        self._preparer = preparer
        self._counters = counters

    def of_message(self, message: Any, failure: DecodeFailure, *, count: bool = True) -> OutRecord:
        """Return the letter of a message; count it unless a state does."""
        received = dict(message.headers or ())
        source = {
            "topic": message.topic.encode(),
            "partition": b"%d" % message.partition,
            "offset": b"%d" % message.offset,
            # of the delivery to this topic: `ragmeter kafka redrive` counts on
            "attempt": _next_attempt(received.get("attempt", b"0")),
        }
        if ENCODING_HEADER in received:
            source[ENCODING_HEADER] = received[ENCODING_HEADER]
        if count:
            self._counters.inc("ragmeter_dead_letters_total", (("reason", failure.reason),))
        value = message.value or b""
        errors = failure.errors
        if framing := describe_framing(value):
            errors = (("", framing), *errors)
        return self.of(message.key, replace(failure, raw=value, errors=errors), source)

    def of(
        self, key: bytes | None, failure: DecodeFailure, source: Mapping[str, bytes]
    ) -> OutRecord:
        """Return the letter of what is no message of its own.

        `source` are headers: topic, partition and offset.
        """
        errors = strip_error_text(failure.errors, self._preparer.redactor, self._preparer.content)
        headers = {
            "reason": failure.reason.encode(),
            "error": json.dumps(errors).encode("utf-8", "replace")[:_MAX_ERROR],
            **source,
        }
        place = b"/".join(source[name] for name in ("topic", "partition", "offset")).decode()
        log.warning("%s is a dead letter: %s", place, failure.reason)
        letter = OutRecord(
            topic=self.topic, value=failure.raw, key=key, partition=None, headers=headers
        )
        # a body over the limit may be larger than any topic takes; it stays where it was read
        small = len(failure.raw) <= self._preparer.limit
        return letter if small and self._preparer.keeps_raw else without_body(letter)


def without_body(letter: OutRecord) -> OutRecord:
    """Return a letter that only says where its message lies."""
    return letter._replace(key=None, value=b"", headers={**letter.headers, "truncated": b"1"})


def _next_attempt(attempt: Any) -> bytes:
    try:
        return b"%d" % (int(attempt) + 1)
    except (TypeError, ValueError):
        return b"1"
