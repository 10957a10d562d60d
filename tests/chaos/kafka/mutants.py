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
from ragmeter.kafka import owners, transactions
from ragmeter.kafka.origins import ORIGIN_HEADER, SourceMarks, read_origin
from ragmeter.kafka.owners import OutRecord, PartitionOwner
from ragmeter.kafka.processors.score import ScoreOwner
from ragmeter.kafka.score_group import ScoreGroup
from ragmeter.kafka.state.seen_ids import SeenIdRows
from ragmeter.kafka.transactions import TransactionalOwner

__all__ = ["MUTANTS"]

FAR = 1.0


def early_offsets() -> None:
    """Offsets of scores are committed before what comes of them."""
    _commit_in_two(offsets_first=True)


def late_offsets() -> None:
    """Offsets of scores are committed after what comes of them; repetitions are not known."""
    _commit_in_two(offsets_first=False)
    _forget_repetitions()


def _commit_in_two(offsets_first: bool) -> None:
    commit = TransactionalOwner.commit

    async def in_two(self: TransactionalOwner, records: Iterable[OutRecord], position: int) -> None:
        before = self.position
        if offsets_first:
            await commit(self, [], position)
            await asyncio.sleep(FAR)
            await commit(self, records, position)
        else:
            await commit(self, records, before)
            await asyncio.sleep(FAR)
            await commit(self, [], position)

    _swap(TransactionalOwner, "commit", in_two)


def no_fence() -> None:
    """Every owner has a transactional id of its own; repetitions are not known."""
    make = owners.make_producer

    def unique(kafka: Any, largest: int, **options: Any) -> Any:
        options["transactional_id"] += f"-{uuid.uuid4()}"
        return make(kafka, largest, **options)

    _swap(transactions, "make_producer", unique)
    _forget_repetitions()


def no_marks() -> None:
    """What the score stage sends again is not recognised, nor are trace ids."""
    _forget_repetitions()


def early_marks() -> None:
    """A record says of its own messages that they are acknowledged."""
    with_origin = ScoreOwner._with_origin

    def early(self: ScoreOwner, one: Any) -> Any:
        record = with_origin(self, one)
        origin = read_origin(record.headers.items())
        if origin is None:
            return record
        ahead = origin._replace(first=origin.offset).encode()
        return record._replace(headers={**record.headers, ORIGIN_HEADER: ahead})

    _swap(ScoreOwner, "_with_origin", early)


def unacknowledged() -> None:
    """A batch counts as done a while before it is sent."""
    send = ScoreGroup.send

    async def later(self: ScoreGroup, records: Any) -> set[int]:
        await asyncio.sleep(FAR)
        return await send(self, records)

    async def early(self: ScoreOwner, pairs: Any) -> None:
        self.advance(pairs[-1][0].offset + 1)
        await sent(self, pairs)

    sent = ScoreOwner._send
    _swap(ScoreOwner, "_send", early)
    _swap(ScoreGroup, "send", later)


def no_position() -> None:
    """An owner takes whatever is delivered, again or with something missing before it."""

    def put(self: PartitionOwner, message: Any) -> None:
        if self.ready:
            self.expected = message.offset + 1
            self.queue.append(message)
            self._arrived.set()

    _swap(PartitionOwner, "put", put)
    _forget_repetitions()


def _forget_repetitions() -> None:
    _swap(SeenIdRows, "add", lambda self, service, trace_id, timestamp: True)
    _swap(SourceMarks, "take", lambda self, origin, offset=None: True)


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
