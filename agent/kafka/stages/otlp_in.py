"""OTLP requests that come as messages: their spans go, split by trace, into the topic of the spans.

All spans of a trace go to the same partition, whatever messages they came in: there they are put
together (`agent.kafka.stages.assemble_stage`). Of a message, one partition gets one record, or
several where it is large.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from aiokafka.partitioner import murmur2

from agent.assembly import LOGS, TRACES, Batch, parts_total
from agent.counters import Counters
from agent.ingest.carried import Carried
from agent.ingest.otlp import Undecodable
from agent.ingest.otlp.replies import Form
from agent.kafka.messages.encodings import Encoding, is_logs
from agent.kafka.messages.source import Source
from agent.kafka.messages.span_records import RECORD_BYTES, SpanRecord, encode_spans, split
from agent.privacy.redactor import Redactor
from agent.sources.otlp import SILENT, batch_of

__all__ = ["OtlpIn", "Unusable", "partition_for"]

DECODING = 2
"""Messages that are decoded at a time: what they hold is at worst 150 MB each meanwhile."""


class Unusable(Exception):
    """Nothing of a message could be used; it is a dead letter."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def partition_for(trace: bytes, partitions: int) -> int:
    """As Kafka's own clients find it for a key."""
    return int((murmur2(trace) & 0x7FFFFFFF) % partitions)


class OtlpIn:
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
        self._decoding = asyncio.Semaphore(DECODING)

    async def take(self, body: bytes, encoding: Encoding, source: Source) -> None:
        """Returns when all that the message brings is in the topic. Raises `Unusable`."""
        async with self._decoding:
            batch, broken = await asyncio.to_thread(self._read, body, encoding)
        if broken is not None:
            self._counters.inc(*parts_total(batch.signal, "undecodable"))
            raise Unusable(broken.reason, str(broken))
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
        elif told := [f"{number} {why}" for why, number in refused.items() if why not in SILENT]:
            raise Unusable("invalid_otlp", ", ".join(told))

    def _read(self, body: bytes, encoding: Encoding) -> tuple[Batch, Undecodable | None]:
        if encoding is Encoding.JSON:
            return self._batch(LOGS if is_logs(body) else TRACES, "json", body)
        batch, broken = self._batch(TRACES, "protobuf", body)
        if broken is None and not batch.parts and batch.refused:
            # the frames of both requests are the same: log records look like spans without ids
            logs, wrong = self._batch(LOGS, "protobuf", body)
            if wrong is None and (logs.parts or logs.refused.keys() <= set(SILENT)):
                return logs, None
        return batch, broken

    def _batch(self, signal: str, form: Form, body: bytes) -> tuple[Batch, Undecodable | None]:
        return batch_of(signal, form, body, self._redactor)

    async def _spread(self, parts: Sequence[Carried], source: Source) -> None:
        partitions = await self._partitions()
        there: dict[int, list[Carried]] = defaultdict(list)
        for one in parts:
            there[partition_for(one.part.trace, partitions)].append(one)
        sends = []
        for partition, found in there.items():
            groups = list(split(found, min(RECORD_BYTES, self._limit)))
            for number, group in enumerate(groups):
                record = SpanRecord(source, number, len(groups), group)
                sends.append(self._send(partition, encode_spans(record)))
        await asyncio.gather(*sends)
