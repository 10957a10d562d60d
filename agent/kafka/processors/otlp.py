"""OTLP on Kafka: requests are split into span records, and spans are assembled into traces.

All spans of a trace go to one partition of the spans topic, whatever messages they came in. There
an owner hands complete traces on to the topic of the traces, in native form. A trace is in that
topic before the step that forgets its spans; if a worker dies in between, the next one sends the
same trace again, and it counts once by its service and trace id.
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
from faust.types import EventT

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import Counters, Counts
from ragmeter.core.errors import RagmeterError
from ragmeter.embedded.endpoints.otlp import SILENT_STATUSES, decode_batch
from ragmeter.embedded.open_traces import LOGS, TRACES, SpanBatch, parts_total
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.native import BodyLimitExceeded, DecodeFailure, decode_trace
from ragmeter.ingest.otlp.limits import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.stored_spans import StoredPart, read_stored_trace
from ragmeter.kafka.processors.delivery import (
    ProcessorContext,
    deliver,
    partition_for_key,
    raw_topic,
)
from ragmeter.kafka.processors.durable import DurableProcessor, PartitionOwner
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

log = logging.getLogger(__name__)

_DECODING = 2  # messages decoded at a time; at worst each holds 150 MB meanwhile
_TICK_SECONDS = 0.25  # how often due traces are closed: up to so much is added to quiet times
_CLOSE = 64  # traces closed in one step
_CLOSE_BYTES = 16 * 2**20  # of spans read for one step; a trace that is larger goes alone
# Real tombstones a step. Two for each row of spans, of which each closed trace has some: with
# fewer, forgotten rows would outgrow the open ones, in memory and in the topic.
SWEEP = 1024


class UnusableMessage(RagmeterError):
    """Nothing of a message could be used; it is a dead letter."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class OtlpSplitter:
    """Splits OTLP messages into records of the spans topic.

    `partitions` returns how many the spans topic has, `send` delivers a record to one of them, and
    `limit` bounds a span in bytes.
    """

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
        """Deliver all spans of a message.

        Raises:
            UnusableMessage: The message has none.
        """
        async with self._decoding:
            batch, broken = await asyncio.to_thread(self._decode, body, encoding)
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
            await self._distribute(parts, source)
            return
        reasons = [
            f"{number} {why}" for why, number in refused.items() if why not in SILENT_STATUSES
        ]
        if reasons:
            raise UnusableMessage("invalid_otlp", ", ".join(reasons))

    def _decode(
        self, body: bytes, encoding: MessageEncoding
    ) -> tuple[SpanBatch, UndecodableBody | None]:
        if encoding is MessageEncoding.JSON:
            signal = LOGS if is_logs(body) else TRACES
            return decode_batch(signal, "json", body, self._redactor)
        batch, broken = decode_batch(TRACES, "protobuf", body, self._redactor)
        if broken is None and not batch.parts and batch.refused:
            # both requests have the same field numbers: log records look like spans without ids
            logs, broken_logs = decode_batch(LOGS, "protobuf", body, self._redactor)
            if broken_logs is None and (logs.parts or logs.refused.keys() <= set(SILENT_STATUSES)):
                return logs, None
        return batch, broken

    async def _distribute(self, parts: Sequence[StoredPart], source: SourceOffset) -> None:
        partitions = await self._partitions()
        by_partition: dict[int, list[StoredPart]] = defaultdict(list)
        for one in parts:
            by_partition[partition_for_key(one.part.trace, partitions)].append(one)
        sends = []
        for partition, own in by_partition.items():
            groups = list(split_spans(own, min(RECORD_BYTES, self._limit)))
            for number, group in enumerate(groups):
                record = SpanRecord(source, number, len(groups), group)
                sends.append(self._send(partition, encode_spans(record)))
        await asyncio.gather(*sends)


def extract_traces(
    bodies: Sequence[bytes], closing: ClosingTrace, settings: OtlpSettings, limit: int
) -> tuple[list[tuple[bytes, bytes]], list[DecodeFailure], Counts]:
    """Extract native traces of up to `limit` bytes from the spans of a closed trace.

    Never raises for bad spans: they cost this trace alone.

    Returns:
        Key and body of each trace, the dead letters, and what is to be counted.
    """
    counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
    good: list[tuple[bytes, bytes]] = []
    bad: list[DecodeFailure] = []
    try:
        spans, lost = read_stored_trace(bodies)
        for (signal, result), number in lost.items():
            counts[parts_total(signal, result)] = number
        extracted = extract_requests(spans, settings)
        for reason, number in extracted.dropped.items():
            counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
        for trace in extracted.traces:
            item = decode_trace(trace.model_dump_json(exclude_none=True).encode(), limit)
            if isinstance(item, DecodeFailure):
                bad.append(item)
            else:
                good.append((trace.trace_id.encode("utf-8", "replace"), item.body))
        return good, bad, counts
    except BodyLimitExceeded as error:
        failure = "too_large", str(error)
    except MemoryError:
        raise
    except Exception as error:
        log.exception("trace %s cannot be read; it is a dead letter", closing.trace.hex())
        failure = "internal_error", repr(error)[:200]
    # the lines of the trace as JSON lines, without the letter before each
    raw = b"\n".join(line[1:] for line in b"\n".join(bodies).split(b"\n"))
    return [], [DecodeFailure(failure[0], (("", failure[1]),), raw)], counts


class AssembleOwner(PartitionOwner[AssemblyState]):
    """One partition of the spans topic in one generation."""

    processor: AssembleProcessor
    sweep = SWEEP

    @property
    def idle_seconds(self) -> float:
        """No wait while complete traces are to be handed on."""
        return 0.0 if self.state.ready() else _TICK_SECONDS

    @property
    def gather_seconds(self) -> float:
        """No wait while complete traces are to be handed on: each turn closes only some."""
        return 0.0 if self.state.ready() else super().gather_seconds

    async def process(self, events: list[EventT[Any]]) -> None:
        """Hand on what the last step has closed, take in spans, and close what is due."""
        records = [await self._decode(event) for event in events]
        while True:
            await self._hand_on()
            with self.processor.lock:
                taken = self.state.apply(records)
                self.state.close_due(_CLOSE, _CLOSE_BYTES)
                # tombstones of forgotten rows are swept while nothing else is to do
                if not events and not self.state.changed and self.ledger.garbage:
                    self.state.touch()
            await self.commit(events[:taken])
            events, records = events[taken:], records[taken:]
            if not events:
                return

    async def _decode(self, event: EventT[Any]) -> SpanRecord | None:
        try:
            return decode_spans(event.message.value or b"")
        except BadRecord as error:
            await self.processor.send_dead_letter(event, error.reason, str(error))
            return None

    async def _hand_on(self) -> None:
        ready = self.state.ready()
        if not ready:
            return
        self.check_owned()
        counts = await asyncio.gather(*map(self._hand_on_one, ready))
        with self.processor.lock:
            for closing, count in zip(ready, counts, strict=True):
                self.state.handed_on(closing.trace, count)

    async def _hand_on_one(self, closing: ClosingTrace) -> Counts:
        # from the table, where the state is anyway: spans are held once
        table, ledger = self.processor.table.data, self.ledger
        rows = self.state.rows(closing.trace)
        bodies = [span_body(Ledger.content(table[ledger.key(row)])) for row in rows]
        source = {
            "topic": self.tp.topic.encode(),
            "partition": b"%d" % self.tp.partition,
            "offset": b"%d" % max(0, self.position - 1),  # of the last that was taken in
            "attempt": b"1",
            "trace": closing.trace.hex().encode(),
        }
        return await self.processor.hand_on(closing, bodies, source)


class AssembleProcessor(DurableProcessor[AssemblyState]):
    """The partitions of the spans topic that this worker owns.

    `send` delivers a native trace (key, body) to the topic of the traces.
    """

    owner_type = AssembleOwner

    def __init__(
        self,
        context: ProcessorContext,
        app: faust.App,
        table: StateTable,
        topic: str,
        build: Callable[[], AssemblyState],
        send: Callable[[bytes, bytes], Awaitable[object]],
    ) -> None:
        super().__init__(context, app, table, topic, build)
        self._send = send

    async def hand_on(
        self, closing: ClosingTrace, bodies: Sequence[bytes], source: dict[str, bytes]
    ) -> Counts:
        """Deliver the traces and dead letters of a closed trace; return what is to be counted."""
        settings = self.context.settings
        good, bad, counts = await asyncio.to_thread(
            extract_traces, bodies, closing, settings.otlp, settings.limits.trace_bytes
        )
        refused = await asyncio.gather(*(self._send_one(key, body) for key, body in good))
        for one in [*bad, *filter(None, refused)]:
            key = closing.trace.hex().encode()
            await self.context.dead.put(key, one.raw, one.reason, one.errors, source)
            counter = "ragmeter_dead_letters_total", (("reason", one.reason),)
            counts[counter] = counts.get(counter, 0) + 1
        return counts

    async def _send_one(self, key: bytes, body: bytes) -> DecodeFailure | None:
        """Send a trace; one that its topic refuses must not end each worker that tries."""
        try:
            await self._send(key, body)
        except MessageSizeTooLargeError:
            return DecodeFailure("too_large", (("", "a trace is larger than a message"),), body)
        return None


def make_otlp_processors(
    context: ProcessorContext, app: faust.App, redactor: Redactor
) -> tuple[OtlpSplitter, AssembleProcessor]:
    """Make both halves, and register the agent of the second with `app`."""
    settings = context.settings
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

    # the header tells the encoding whatever `kafka.traces_encoding` says of the messages of others
    native = {ENCODING_HEADER: MessageEncoding.NATIVE.encode()}
    assemble = AssembleProcessor(
        context,
        app,
        StateTable.add_to(app, "spans", kafka.partitions),
        kafka.topics.spans,
        build,
        lambda key, body: deliver(traces, key, body, native),
    )
    app.agent(spans, name="assemble")(assemble.agent)
    splitter = OtlpSplitter(
        partitions,
        lambda partition, data: deliver(spans, None, data, partition=partition),
        redactor,
        context.counters,
        limit=limit,
    )
    return splitter, assemble
