"""`ragmeter worker` with one of its safeguards taken out: `python -m ...mutants NAME worker`.

A chaos run that finds no difference in one of these has shown nothing about that safeguard. Each
waits `FAR` seconds between two writes that have lost their order, as for brokers far away.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterable
from typing import Any

import ragmeter.cli.main
from ragmeter.kafka import transactions
from ragmeter.kafka.state.seen_ids import SeenIdRows
from ragmeter.kafka.transactions import OutRecord, PartitionOwner

__all__ = ["MUTANTS"]

FAR = 1.0


def early_offsets() -> None:
    """Offsets are committed before what comes of their messages."""
    _commit_in_two(offsets_first=True)


def late_offsets() -> None:
    """Offsets are committed after what comes of their messages; trace ids are not known."""
    _commit_in_two(offsets_first=False)
    _swap(SeenIdRows, "add", lambda self, service, trace_id, timestamp: True)


def _commit_in_two(offsets_first: bool) -> None:
    commit = PartitionOwner.commit

    async def in_two(self: PartitionOwner, records: Iterable[OutRecord], position: int) -> None:
        before = self.position
        if offsets_first:
            await commit(self, [], position)
            await asyncio.sleep(FAR)
            await commit(self, records, position)
        else:
            await commit(self, records, before)
            await asyncio.sleep(FAR)
            await commit(self, [], position)

    _swap(PartitionOwner, "commit", in_two)


def no_fence() -> None:
    """Every owner has a transactional id of its own; trace ids are not known."""
    make = transactions.make_producer

    def unique(kafka: Any, largest: int, name: str, *more: Any) -> Any:
        return make(kafka, largest, f"{name}-{uuid.uuid4()}", *more)

    _swap(transactions, "make_producer", unique)
    _swap(SeenIdRows, "add", lambda self, service, trace_id, timestamp: True)


def no_position() -> None:
    """An owner takes whatever is delivered, again or with something missing before it."""

    def put(self: PartitionOwner, message: Any, since: int) -> None:
        if self.ready:
            self.expected = message.offset + 1
            self.queue.append(message)
            self._arrived.set()

    _swap(PartitionOwner, "put", put)
    _swap(SeenIdRows, "add", lambda self, service, trace_id, timestamp: True)


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
