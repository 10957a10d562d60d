"""Split OTLP requests into span records, and assemble spans into traces.

OTLP requests that come as messages: their spans go, split by trace, into the topic of the spans.

All spans of a trace go to the same partition, whatever messages they came in: there they are put
together (`ragmeter.kafka.processors.otlp`). Of a message, one partition gets one record, or
several where it is large.

Between OTLP and stage 1: spans into traces, and complete ones back into the topic of the traces.

In each turn an owner hands on what the step before has closed, takes new spans in, closes what is
due, and makes all of that one step. A trace is in the topic of the traces before the step that
forgets its spans; where a worker dies in between, the next one sends the same again, and stage 2
counts it once by its service and trace id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import faust
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.partitioner import murmur2
from faust.types import EventT

from ragmeter.config.inputs import OtlpSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, Counts
from ragmeter.embedded.endpoints.otlp import SILENT_STATUSES, decode_batch
from ragmeter.embedded.open_traces import LOGS, TRACES, SpanBatch, parts_total
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.native import BodyLimitExceeded, DecodeFailure, decode_trace
from ragmeter.ingest.otlp.bodies import BodyForm
from ragmeter.ingest.otlp.limits import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.stored_spans import StoredPart, read_stored_trace
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer, deliver, raw_topic
from ragmeter.kafka.processors.durable import ChangelogRows, DurableProcessor, PartitionOwner
from ragmeter.kafka.score_records import BadRecord, SourceOffset
from ragmeter.kafka.span_records import (
    ENCODING_HEADER,
    RECORD_BYTES,
    MessageEncoding,
    SpanRecord,
    decode_spans,
    encode_spans,
    is_logs,
    split_spans,
)
from ragmeter.kafka.state.assembly import AssemblyState, partition_share, span_body
from ragmeter.kafka.state.ledger import Ledger
from ragmeter.kafka.tables import StateTable

_DECODING = 2
"""Messages that are decoded at a time: what they hold is at worst 150 MB each meanwhile."""


class UnusableMessage(Exception):
    """Nothing of a message could be used; it is a dead letter."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def partition_for_key(trace: bytes, partitions: int) -> int:
    """As Kafka's own clients find it for a key."""
    return int((murmur2(trace) & 0x7FFFFFFF) % partitions)


class OtlpSplitter:
    """`partitions` says how many the topic of the spans has; `send` returns when the broker has
    what goes to a partition. `limit` bounds a span in bytes."""

    def __init__(
        self,
        partitions: Callable[[], Awaitable[int]],
        send: Callable[[int, bytes], Awaitable[object]],
        redactor: Redactor,
        counters: Counters,
        *,
        limit: int,
    ) -> None:
        self._partitions = partitions
        self._send = send
        self._redactor = redactor
        self._counters = counters
        self._limit = limit
        self._decoding = asyncio.Semaphore(_DECODING)

    async def split_request(
        self, body: bytes, encoding: MessageEncoding, source: SourceOffset
    ) -> None:
        """Returns when all that the message brings is in the topic. Raises `Unusable`."""
        async with self._decoding:
            batch, broken = await asyncio.to_thread(self._read, body, encoding)
        if broken is not None:
            self._counters.inc(*parts_total(batch.signal, "undecodable"))
            raise UnusableMessage(broken.reason, str(broken))
        parts = [one for one in batch.parts if len(one.line) <= self._limit]
        refused = dict(batch.refused)
        if len(parts) < len(batch.parts):
            refused["too_large"] = refused.get("too_large", 0) + len(batch.parts) - len(parts)
        for (name, labels), by in batch.counts.items():
            self._counters.inc(name, labels, by)
        for reason, number in refused.items():
            self._counters.inc(*parts_total(batch.signal, reason), number)
        if parts:
            await self._spread(parts, source)
        elif told := [
            f"{number} {why}" for why, number in refused.items() if why not in SILENT_STATUSES
        ]:
            raise UnusableMessage("invalid_otlp", ", ".join(told))

    def _read(
        self, body: bytes, encoding: MessageEncoding
    ) -> tuple[SpanBatch, UndecodableBody | None]:
        if encoding is MessageEncoding.JSON:
            return self._batch(LOGS if is_logs(body) else TRACES, "json", body)
        batch, broken = self._batch(TRACES, "protobuf", body)
        if broken is None and not batch.parts and batch.refused:
            # the frames of both requests are the same: log records look like spans without ids
            logs, wrong = self._batch(LOGS, "protobuf", body)
            if wrong is None and (logs.parts or logs.refused.keys() <= set(SILENT_STATUSES)):
                return logs, None
        return batch, broken

    def _batch(
        self, signal: str, form: BodyForm, body: bytes
    ) -> tuple[SpanBatch, UndecodableBody | None]:
        return decode_batch(signal, form, body, self._redactor)

    async def _spread(self, parts: Sequence[StoredPart], source: SourceOffset) -> None:
        partitions = await self._partitions()
        there: dict[int, list[StoredPart]] = defaultdict(list)
        for one in parts:
            there[partition_for_key(one.part.trace, partitions)].append(one)
        sends = []
        for partition, found in there.items():
            groups = list(split_spans(found, min(RECORD_BYTES, self._limit)))
            for number, group in enumerate(groups):
                record = SpanRecord(source, number, len(groups), group)
                sends.append(self._send(partition, encode_spans(record)))
        await asyncio.gather(*sends)


log = logging.getLogger("ragmeter.kafka")

_TICK_SECONDS = 0.25  # how often it is looked what is due: up to so much is added to quiet times
_CLOSE = 64  # traces closed in one step
_CLOSE_BYTES = 16 * 2**20  # of spans read for one; a trace that is larger goes alone
SWEEP = 1024
"""Real tombstones a step. Two for each row of spans, of which each closed trace has some: with
fewer, what was forgotten would outgrow what is open, in memory and in the topic."""

SendTrace = Callable[[bytes, bytes], Awaitable[object]]


def extract_traces(
    bodies: Sequence[bytes], closing: ClosingTrace, settings: OtlpSettings, limit: int
) -> tuple[list[tuple[bytes, bytes]], list[DecodeFailure], Counts]:
    """What the spans of a closed trace say: native traces by id, what is a dead letter, and what is
    counted. Whatever is wrong with them costs this trace alone."""
    counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
    good: list[tuple[bytes, bytes]] = []
    try:
        spans, lost = read_stored_trace(bodies)
        for (signal, result), number in lost.items():
            counts[parts_total(signal, result)] = number
        found = extract_requests(spans, settings)
        for reason, number in found.dropped.items():
            counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
        bad: list[DecodeFailure] = []
        for trace in found.traces:
            item = decode_trace(trace.model_dump_json(exclude_none=True).encode(), limit)
            if isinstance(item, DecodeFailure):
                bad.append(item)
            else:
                good.append((trace.trace_id.encode("utf-8", "replace"), item.body))
        return good, bad, counts
    except BodyLimitExceeded as error:
        return [], [DecodeFailure("too_large", (("", str(error)),), _raw(bodies))], counts
    except MemoryError:
        raise
    except Exception as error:
        log.exception("trace %s cannot be read; it is a dead letter", closing.trace.hex())
        return (
            [],
            [DecodeFailure("internal_error", (("", repr(error)[:200]),), _raw(bodies))],
            counts,
        )


def _raw(bodies: Sequence[bytes]) -> bytes:
    """The lines of a trace as JSON lines, without the letter before each."""
    return b"\n".join(line[1:] for line in b"\n".join(bodies).split(b"\n"))


class AssembleOwner(PartitionOwner[AssemblyState]):
    def __init__(
        self, stage: AssembleProcessor, partition: int, generation: int, rows: ChangelogRows
    ) -> None:
        super().__init__(stage, partition, generation, rows)
        self._assemble = stage
        self.ledger.sweep = SWEEP

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self.state.ready() else _TICK_SECONDS

    @property
    def gather_seconds(self) -> float:
        """Traces that are complete are handed on before more is waited for: each turn closes only
        some of them."""
        return 0.0 if self.state.ready() else super().gather_seconds

    async def process(self, events: list[EventT[Any]]) -> None:
        records = [await self._read(event) for event in events]
        while True:
            await self._hand_on()
            with self.durable.lock:
                taken = self.state.apply(records)
                self.state.close_due(_CLOSE, _CLOSE_BYTES)
                # what was forgotten still lies there: while nothing else is to do it is swept
                if not events and not self.state.changed and self.ledger.garbage:
                    self.state.touch()
            await self.commit(events[:taken])
            events, records = events[taken:], records[taken:]
            if not events:
                return

    async def _read(self, event: EventT[Any]) -> SpanRecord | None:
        try:
            return decode_spans(event.message.value or b"")
        except BadRecord as error:
            await self.durable.send_dead_letter(event, error.reason, str(error))
            return None

    async def _hand_on(self) -> None:
        ready = self.state.ready()
        if not ready:
            return
        self.check_owned()
        counts = await asyncio.gather(*map(self._hand_on_one, ready))
        with self.durable.lock:
            for closing, found in zip(ready, counts, strict=True):
                self.state.handed_on(closing.trace, found)

    async def _hand_on_one(self, closing: ClosingTrace) -> Counts:
        bodies = [self._body(row) for row in self.state.rows(closing.trace)]
        return await self._assemble.hand_on(closing, bodies, self._where(closing))

    def _body(self, row: bytes) -> bytes:
        """From the table, where the state is anyway: spans are held once."""
        return span_body(Ledger.content(self.durable.table.data[self.ledger.key(row)]))

    def _where(self, closing: ClosingTrace) -> dict[str, bytes]:
        return {
            "topic": self.tp.topic.encode(),
            "partition": b"%d" % self.tp.partition,
            "offset": b"%d" % max(0, self.position - 1),  # of the last that was taken in
            "attempt": b"1",
            "trace": closing.trace.hex().encode(),
        }


class AssembleProcessor(DurableProcessor[AssemblyState]):
    """All partitions of the spans that this worker owns. `send` puts a native trace (key, body)
    into the topic of the traces; `limit` bounds one in bytes."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadLetterTopic,
        counters: Counters,
        *,
        build: Callable[[], AssemblyState],
        failed: Callable[[BaseException], Awaitable[object]],
        send: SendTrace,
        otlp: OtlpSettings,
        limit: int,
    ) -> None:
        super().__init__(app, table, topic, dead, counters, build=build, failed=failed)
        self._send = send
        self._otlp = otlp
        self._limit = limit

    def make_owner(self, partition: int, generation: int, rows: ChangelogRows) -> AssembleOwner:
        return AssembleOwner(self, partition, generation, rows)

    async def hand_on(
        self, closing: ClosingTrace, bodies: Sequence[bytes], where: dict[str, bytes]
    ) -> Counts:
        """Returns when what comes of a trace is in its topics; what is to be counted of it."""
        good, bad, counts = await asyncio.to_thread(
            extract_traces, bodies, closing, self._otlp, self._limit
        )
        refused = await asyncio.gather(*(self._send_one(key, body) for key, body in good))
        for one in [*bad, *filter(None, refused)]:
            await self.dead.put(
                closing.trace.hex().encode(), one.raw, one.reason, one.errors, where
            )
            label = (("reason", one.reason),)
            counts["ragmeter_dead_letters_total", label] = (
                counts.get(("ragmeter_dead_letters_total", label), 0) + 1
            )
        return counts

    async def _send_one(self, key: bytes, body: bytes) -> DecodeFailure | None:
        """What the topic does not take, though it should, must not end each worker that tries."""
        try:
            await self._send(key, body)
        except MessageSizeTooLargeError:
            return DecodeFailure("too_large", (("", "a trace is larger than a message"),), body)
        return None


def make_otlp_processors(
    app: faust.App,
    settings: Settings,
    preparing: TracePreparer,
    dead: DeadLetterTopic,
    counters: Counters,
    failed: Any,
) -> tuple[OtlpSplitter, AssembleProcessor]:
    """The agent of the second is registered with `app`."""
    kafka, limit = settings.kafka, settings.limits.trace_bytes
    spans, traces = raw_topic(app, kafka.topics.spans), raw_topic(app, kafka.topics.traces)
    share = partition_share(settings.otlp, kafka.partitions)

    async def partitions() -> int:
        producer: Any = await app.maybe_start_producer()
        return len(await producer._producer.partitions_for(kafka.topics.spans))

    def build() -> AssemblyState:
        return AssemblyState(
            share,
            width=2 * kafka.in_flight,
            row_bytes=min(RECORD_BYTES, limit),
            clock=time.time,
            monotonic=time.monotonic,
        )

    # by the header it is known whatever `kafka.traces_encoding` says of the messages of others
    native = {ENCODING_HEADER: MessageEncoding.NATIVE.encode()}
    stage = AssembleProcessor(
        app,
        StateTable.add_to(app, "spans", kafka.partitions),
        kafka.topics.spans,
        dead,
        counters,
        build=build,
        failed=failed,
        send=lambda key, body: deliver(traces, key, body, native),
        otlp=settings.otlp,
        limit=limit,
    )
    app.agent(spans, name="assemble")(stage.agent)
    way_in = OtlpSplitter(
        partitions,
        lambda partition, data: deliver(spans, None, data, partition=partition),
        preparing.redactor,
        counters,
        limit=limit,
    )
    return way_in, stage
