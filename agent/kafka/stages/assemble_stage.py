"""Between OTLP and stage 1: spans into traces, and complete ones back into the topic of the traces.

In each turn an owner hands on what the step before has closed, takes new spans in, closes what is
due, and makes all of that one step. A trace is in the topic of the traces before the step that
forgets its spans; where a worker dies in between, the next one sends the same again, and stage 2
counts it once by its service and trace id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import faust
from aiokafka.errors import MessageSizeTooLargeError
from faust.types import EventT

from agent.assembly import parts_total
from agent.counters import Counters, Counts
from agent.ingest.assembler import Closing
from agent.ingest.bounds import TooMuch
from agent.ingest.carried import read
from agent.ingest.native import Bad, decode_one
from agent.ingest.requests import requests
from agent.kafka.client.state_table import StateTable
from agent.kafka.messages.records import BadRecord
from agent.kafka.messages.span_records import SpanRecord, decode_spans
from agent.kafka.stages.durable_stage import DurableStage
from agent.kafka.stages.owner import Log, Owner
from agent.kafka.stages.sending import DeadTopic
from agent.kafka.state.assembly_state import AssemblyState
from agent.kafka.state.slots import Ledger
from agent.kafka.state.span_rows import body_of
from agent.settings.otlp import Otlp

__all__ = ["AssembleOwner", "AssembleStage", "extracted"]

log = logging.getLogger("ragmeter.kafka")

TICK_SECONDS = 0.25  # how often it is looked what is due: up to so much is added to quiet times
CLOSE = 64  # traces closed in one step
CLOSE_BYTES = 16 * 2**20  # of spans read for one; a trace that is larger goes alone
SWEEP = 1024
"""Real tombstones a step. Two for each row of spans, of which each closed trace has some: with
fewer, what was forgotten would outgrow what is open, in memory and in the topic."""

Send = Callable[[bytes, bytes], Awaitable[object]]


def extracted(
    bodies: Sequence[bytes], closing: Closing, settings: Otlp, limit: int
) -> tuple[list[tuple[bytes, bytes]], list[Bad], Counts]:
    """What the spans of a closed trace say: native traces by id, what is a dead letter, and what is
    counted. Whatever is wrong with them costs this trace alone."""
    counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
    good: list[tuple[bytes, bytes]] = []
    try:
        spans, lost = read(bodies)
        for (signal, result), number in lost.items():
            counts[parts_total(signal, result)] = number
        found = requests(spans, settings)
        for reason, number in found.dropped.items():
            counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
        bad: list[Bad] = []
        for trace in found.traces:
            item = decode_one(trace.model_dump_json(exclude_none=True).encode(), limit)
            if isinstance(item, Bad):
                bad.append(item)
            else:
                good.append((trace.trace_id.encode("utf-8", "replace"), item.body))
        return good, bad, counts
    except TooMuch as error:
        return [], [Bad("too_large", (("", str(error)),), _raw(bodies))], counts
    except MemoryError:
        raise
    except Exception as error:
        log.exception("trace %s cannot be read; it is a dead letter", closing.trace.hex())
        return [], [Bad("internal_error", (("", repr(error)[:200]),), _raw(bodies))], counts


def _raw(bodies: Sequence[bytes]) -> bytes:
    """The lines of a trace as JSON lines, without the letter before each."""
    return b"\n".join(line[1:] for line in b"\n".join(bodies).split(b"\n"))


class AssembleOwner(Owner[AssemblyState]):
    def __init__(self, stage: AssembleStage, partition: int, generation: int, rows: Log) -> None:
        super().__init__(stage, partition, generation, rows)
        self._assemble = stage
        self.ledger.sweep = SWEEP

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self.state.ready() else TICK_SECONDS

    @property
    def gather_seconds(self) -> float:
        """Traces that are complete are handed on before more is waited for: each turn closes only
        some of them."""
        return 0.0 if self.state.ready() else super().gather_seconds

    async def turn(self, events: list[EventT[Any]]) -> None:
        records = [await self._read(event) for event in events]
        while True:
            await self._hand_on()
            with self.durable.lock:
                taken = self.state.apply(records)
                self.state.close_due(CLOSE, CLOSE_BYTES)
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
            await self.durable.bury(event, error.reason, str(error))
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

    async def _hand_on_one(self, closing: Closing) -> Counts:
        bodies = [self._body(row) for row in self.state.rows(closing.trace)]
        return await self._assemble.hand_on(closing, bodies, self._where(closing))

    def _body(self, row: bytes) -> bytes:
        """From the table, where the state is anyway: spans are held once."""
        return body_of(Ledger.content(self.durable.table.data[self.ledger.key(row)]))

    def _where(self, closing: Closing) -> dict[str, bytes]:
        return {
            "topic": self.tp.topic.encode(),
            "partition": b"%d" % self.tp.partition,
            "offset": b"%d" % max(0, self.position - 1),  # of the last that was taken in
            "attempt": b"1",
            "trace": closing.trace.hex().encode(),
        }


class AssembleStage(DurableStage[AssemblyState]):
    """All partitions of the spans that this worker owns. `send` puts a native trace (key, body)
    into the topic of the traces; `limit` bounds one in bytes."""

    def __init__(
        self,
        app: faust.App,
        table: StateTable,
        topic: str,
        dead: DeadTopic,
        counters: Counters,
        *,
        build: Callable[[], AssemblyState],
        failed: Callable[[BaseException], Awaitable[object]],
        send: Send,
        otlp: Otlp,
        limit: int,
    ) -> None:
        super().__init__(app, table, topic, dead, counters, build=build, failed=failed)
        self._send = send
        self._otlp = otlp
        self._limit = limit

    def own(self, partition: int, generation: int, rows: Log) -> AssembleOwner:
        return AssembleOwner(self, partition, generation, rows)

    async def hand_on(
        self, closing: Closing, bodies: Sequence[bytes], where: dict[str, bytes]
    ) -> Counts:
        """Returns when what comes of a trace is in its topics; what is to be counted of it."""
        good, bad, counts = await asyncio.to_thread(
            extracted, bodies, closing, self._otlp, self._limit
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

    async def _send_one(self, key: bytes, body: bytes) -> Bad | None:
        """What the topic does not take, though it should, must not end each worker that tries."""
        try:
            await self._send(key, body)
        except MessageSizeTooLargeError:
            return Bad("too_large", (("", "a trace is larger than a message"),), body)
        return None
