"""`ragmeter worker` with one of its safeguards taken out: `python -m ...mutants NAME worker`.

A chaos run that finds no difference in one of these has shown nothing about that safeguard. Each
waits `FAR` seconds between two writes that have lost their order, as for brokers far away.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

from faust.tables.recovery import Recovery

import ragmeter.cli.main
from ragmeter.kafka import tables
from ragmeter.kafka.processors import durable, score
from ragmeter.kafka.processors.durable import PartitionOwner, commit_in_generation
from ragmeter.kafka.state.duplicates import RedeliveryGuard, SeenIdRows
from ragmeter.kafka.state.ledger import Ledger, LogRecord

__all__ = ["MUTANTS"]

FAR = 0.2


def early_scores() -> None:
    """A score processor acknowledges a trace when its record is in the producer's buffer."""

    async def send(topic: Any, key: Any, value: Any, headers: Any = None) -> None:
        async def later() -> None:
            await asyncio.sleep(FAR)
            await topic.send(key=key, value=value, headers=dict(headers or {}))

        under_way.add(asyncio.create_task(later()))

    under_way: set[asyncio.Task[None]] = set()
    _swap(score, "deliver", send)


def early_state() -> None:
    """Records are acknowledged, and the fence commits them, before their step is durable."""
    step = PartitionOwner._step

    async def commit(self: PartitionOwner[Any], events: list[Any]) -> None:
        if events:
            self.position = events[-1].message.offset + 1
            await commit_in_generation(
                self.processor.app, self.generation, self.tp, self.position, durable.FENCE_SECONDS
            )
        for event in events:
            await self.processor.ack(event)
        if self.state.changed:
            await asyncio.sleep(FAR)
            await step(self)

    _swap(PartitionOwner, "commit", commit)


def no_guard() -> None:
    """Every record counts, whether its trace was counted or not; trace ids are still known."""
    _swap(RedeliveryGuard, "accept", lambda self, source: True)


def no_guard_no_ids() -> None:
    """And trace ids are not."""
    no_guard()
    _swap(SeenIdRows, "add", lambda self, service, trace_id, timestamp: True)


def no_fence() -> None:
    """An owner does not ask the coordinator, and does not look at its generation."""

    async def passed(*_: Any) -> bool:
        return True

    _swap(durable, "commit_in_generation", passed)
    _swap(PartitionOwner, "check_owned", lambda self: None)


def stock_tables() -> None:
    """Faust's own recovery: messages flow while it comes to its end."""
    plain = Recovery.on_recovery_completed

    async def completed(self: Any, generation_id: int = 0) -> None:
        self.app.take_over(generation_id, set(self.active_tps))
        await plain(self, generation_id)
        self.app.start_owners(generation_id)

    _swap(tables._SafeRecovery, "on_recovery_completed", completed)


def marker_first() -> None:
    """The marker of a step is written before its rows."""

    async def step(self: PartitionOwner[Any]) -> None:
        processor, ledger, partition = self.processor, self.ledger, self.tp.partition
        with processor.lock:
            made = self.state.step()
        self.check_owned()
        rows = ledger.begin(made.rows)
        await processor.table.write(partition, [ledger.marker(made.head)])
        await asyncio.sleep(FAR)
        self.check_owned()
        await processor.table.write(partition, rows)
        if not await commit_in_generation(
            processor.app, self.generation, self.tp, self.position, durable.FENCE_SECONDS
        ):
            raise durable.PartitionLost
        ledger.done()
        self.on_committed(made)

    _swap(PartitionOwner, "_step", step)


def one_slot() -> None:
    """A row is written over its last committed version."""
    begin, marker = Ledger.begin, Ledger.marker

    def late(self: Ledger, head: bytes) -> LogRecord:
        time.sleep(FAR)
        return marker(self, head)

    def in_place(self: Ledger, changes: Mapping[bytes, bytes | None]) -> list[LogRecord]:
        for row, place in self._rows.items():
            self._rows[row] = place._replace(slot=1)
        return begin(self, changes)

    _swap(Ledger, "begin", in_place)
    _swap(Ledger, "marker", late)


def _swap(where: Any, name: str, what: Any) -> None:
    assert hasattr(where, name)
    setattr(where, name, what)


MUTANTS = {
    name.replace("_", "-"): found
    for name, found in list(globals().items())
    if callable(found) and getattr(found, "__module__", "") == __name__ and not name.startswith("_")
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    ragmeter.cli.main.app()
