"""OTLP on Kafka: requests are split into span records, and spans are assembled into traces.

All spans of a trace go to one partition of the spans topic, whatever messages they came in. There
an owner hands complete traces on to the topic of the traces, in native form, in the transaction
that forgets their spans.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, Counts
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.closed_traces import extract_traces
from ragmeter.ingest.native import DecodeFailure
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import ExtractedRequests, extract_requests
from ragmeter.ingest.span_batches import (
    LOGS,
    SILENT_STATUSES,
    TRACES,
    SpanBatch,
    decode_batch,
    parts_total,
)
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import StoredPart, split_parts
from ragmeter.kafka.origins import read_origin
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.aggregate import StatefulOwner
from ragmeter.kafka.processors.delivery import partition_for_key
from ragmeter.kafka.span_records import (
    ENCODING_HEADER,
    RECORD_BYTES,
    MessageEncoding,
    decode_spans,
    encode_spans,
    is_logs,
)
from ragmeter.kafka.state.assembly import AssemblyState, partition_share
from ragmeter.kafka.topics import open_spans_topic
from ragmeter.kafka.wire import BadRecord

log = logging.getLogger(__name__)

_DECODING = 2  # messages decoded at a time; at worst each holds 150 MB meanwhile
_TICK_SECONDS = 0.25  # how often due traces are closed: up to so much is added to quiet times
_GATHER_SECONDS = 0.2
_CLOSE = 64  # traces closed in one step
_CLOSE_BYTES = 16 * 2**20  # of spans read for one step; a trace that is larger goes alone
# The header tells the encoding whatever `kafka.traces_encoding` says of the messages of others.
_NATIVE = {ENCODING_HEADER: MessageEncoding.NATIVE.encode()}


class OtlpSplitter:
    """Splits OTLP messages into records of the spans topic."""

    def __init__(self, settings: Settings, redactor: Redactor, counters: Counters) -> None:
        self._topic = settings.kafka.topics.spans
        self._partitions = settings.kafka.partitions
        self._limit = settings.limits.trace_bytes
        self._redactor = redactor
        self._counters = counters
        self._decoding = asyncio.Semaphore(_DECODING)

    async def split_request(
        self, body: bytes, encoding: MessageEncoding
    ) -> list[OutRecord] | DecodeFailure:
        """Return the records of all spans of a message, or why nothing of it could be used."""
        async with self._decoding:
            batch, broken = await asyncio.to_thread(self._decode, body, encoding)
        if broken is not None:
            self._counters.inc(*parts_total(batch.signal, "undecodable"))
            return DecodeFailure.of_whole(broken.reason, str(broken), body)
        parts = [one for one in batch.parts if len(one.line) <= self._limit]
        refused = dict(batch.refused)
        if len(parts) < len(batch.parts):
            refused["too_large"] = refused.get("too_large", 0) + len(batch.parts) - len(parts)
        for (name, labels), by in batch.counts.items():
            self._counters.inc(name, labels, by)
        for reason, number in refused.items():
            self._counters.inc(*parts_total(batch.signal, reason), number)
        if parts:
            return list(self._distribute(parts))
        reasons = [
            f"{number} {why}" for why, number in refused.items() if why not in SILENT_STATUSES
        ]
        return DecodeFailure.of_whole("invalid_otlp", ", ".join(reasons), body) if reasons else []

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

    def _distribute(self, parts: Sequence[StoredPart]) -> Iterator[OutRecord]:
        by_partition: dict[int, list[StoredPart]] = defaultdict(list)
        for one in parts:
            by_partition[partition_for_key(one.part.trace, self._partitions)].append(one)
        for partition, own in by_partition.items():
            for group in split_parts(own, min(RECORD_BYTES, self._limit)):
                yield OutRecord(self._topic, encode_spans(group), None, partition)


class AssembleOwner(StatefulOwner[AssemblyState]):
    """One partition of the spans topic."""

    remedy = (
        "Traces that were open are lost: reset the offsets of the group there to go on without them"
    )
    batch = 200

    @property
    def state_topic(self) -> str:
        """The topic of the open traces."""
        return open_spans_topic(self.parts.settings)

    def new_state(self) -> AssemblyState:
        """Return a state without open traces."""
        settings = self.parts.settings
        return AssemblyState(
            settings.otlp,
            bounds=partition_share(settings.kafka.partitions),
            row_bytes=min(RECORD_BYTES, settings.limits.trace_bytes),
            clock=time.time,
            monotonic=time.monotonic,
        )

    async def work(self) -> None:
        """Take in spans, and hand on the traces that are complete."""
        letters: list[OutRecord] = []
        messages: list[Any] = []
        spans: list[list[StoredPart]] = []
        position = self.position
        closed = False
        while True:
            if not messages:
                # each turn closes only some: no wait while there may be more
                messages = await self.take(0.0 if closed else _TICK_SECONDS, _GATHER_SECONDS)
                spans = [self._decode(one, letters) for one in messages]
            with self.group.lock:
                taken = self.state.apply(spans)
                closing = self.state.close_due(_CLOSE, _CLOSE_BYTES)
            if taken and messages:
                position = messages[-1].offset + 1
                messages = []
                spans = []
            for one, bodies in closing:
                records, counts = await self._hand_on(one, bodies)
                letters += records
                with self.group.lock:
                    self.state.handed_on(one, counts)
            closed = bool(closing)
            if position > self.position or self.state.changed or letters:
                await self.commit_step(letters, position)
                letters = []

    def _decode(self, message: Any, letters: list[OutRecord]) -> list[StoredPart]:
        if not self.state.is_new(read_origin(message.headers)):
            return []
        try:
            return decode_spans(message.value or b"")
        except BadRecord as error:
            letters.append(self.parts.dead.of_message(message, error.failure))
            return []

    def _extract(self, spans: Sequence[Span]) -> ExtractedRequests:
        inspection = self.parts.inspection
        extracted = extract_requests(spans, self.parts.settings.otlp, inspected=inspection.listened)
        # what a stream had in pieces is whole only here, and the topic of the traces is kept
        extracted.traces = self.parts.redactor.extracted(extracted.traces, extracted.counts)
        inspection.publish(extracted)
        return extracted

    async def _hand_on(
        self, closing: ClosingTrace, bodies: Sequence[bytes]
    ) -> tuple[list[OutRecord], Counts]:
        """Return traces and dead letters of a closed trace, and what is to be counted."""
        settings = self.parts.settings
        name = closing.trace.hex().encode()
        items, counts = await asyncio.to_thread(
            extract_traces, closing, lambda: bodies, self._extract, settings.limits.trace_bytes
        )
        records: list[OutRecord] = []
        for one in items:
            if isinstance(one, DecodeFailure):
                source = {
                    "topic": self.tp.topic.encode(),
                    "partition": b"%d" % self.tp.partition,
                    "offset": b"%d" % max(0, self.position - 1),  # of the last that was committed
                    "attempt": b"1",
                    "trace": name,
                }
                records.append(self.parts.dead.of(name, one, source))
                counter = "ragmeter_dead_letters_total", (("reason", one.reason),)
                counts[counter] = counts.get(counter, 0) + 1
            else:
                key = one.trace.trace_id.encode("utf-8", "replace")
                topic = settings.kafka.topics.traces
                records.append(
                    OutRecord(topic=topic, value=one.body, key=key, partition=None, headers=_NATIVE)
                )
        return records, counts
