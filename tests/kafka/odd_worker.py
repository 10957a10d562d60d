"""`ragmeter worker` with what tests need of it: `python -m tests.kafka.odd_worker NAMES worker`

paused:    the consumer of the traces delivers nothing after the first messages.
raises:    the state cannot take a trace whose id begins with "poison".
fat:       scores of a trace whose id begins with "fat" take as many bytes as its id says.
slow:      every trace takes a second.
stuck:     a trace whose id begins with "stuck" takes for ever.
hasty:     a slow tier has 2 s for a trace.
no_lz4:    the packages of the codec lz4 are missing.
torn:      whoever hands on traces made of spans stops within the transaction, all of it sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import codec
from ragmeter.cli.main import app
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors import score
from ragmeter.kafka.processors.otlp import AssembleOwner
from ragmeter.kafka.processors.score import MessageProcessor
from ragmeter.kafka.score_group import ScoreGroup
from ragmeter.kafka.score_records import ScoreRecord
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.scoring.inline_tiers import InlineTiers


def paused() -> None:
    deliver = ScoreGroup._deliver

    async def then_pause(group: ScoreGroup) -> None:
        if any(owner.expected for owner in group.owners.values()):
            await asyncio.sleep(3600)
        await deliver(group)

    ScoreGroup._deliver = then_pause  # type: ignore[assignment,method-assign]


def raises() -> None:
    apply = PartitionState.apply

    def apply_or_not(state: PartitionState, record: ScoresRecord) -> None:
        apply(state, record)  # it is in the state, as half of it with a mistake of ours
        if isinstance(record, ScoreRecord) and record.scored.trace_id.startswith("poison"):
            raise ZeroDivisionError("poison")

    PartitionState.apply = apply_or_not  # type: ignore[assignment,method-assign]


def fat() -> None:
    encode = vars(score)["encode_scores"]

    def padded(records: Sequence[ScoreRecord]) -> list[bytes]:
        found: list[bytes] = []
        for record in records:
            name = record.scored.trace_id
            size = int(name.removeprefix("fat")) if name.startswith("fat") else 0
            found += [data.ljust(size) for data in encode([record])]
        return found

    vars(score)["encode_scores"] = padded


def slow() -> None:
    _before_each(lambda body: 1)


def stuck() -> None:
    _before_each(lambda body: 3600 if b'"stuck' in body else 0)


def _before_each(seconds: Callable[[bytes], float]) -> None:
    handle = MessageProcessor.handle

    def late(processor: MessageProcessor, message: Any, *scores: Any) -> Any:
        async def wait() -> Any:
            await asyncio.sleep(seconds(message.value))
            found = handle(processor, message, *scores)
            return await found if asyncio.iscoroutine(found) else found

        return wait()

    MessageProcessor.handle = late  # type: ignore[assignment,method-assign]


def hasty() -> None:
    defaults = InlineTiers.__init__.__kwdefaults__
    assert defaults is not None
    defaults["deadline"] = 2.0


def no_lz4() -> None:
    codec.has_lz4 = lambda: False


def torn() -> None:
    commit = AssembleOwner.commit

    async def stop() -> None:
        sys.stdout.write("within a transaction\n")
        sys.stdout.flush()
        await asyncio.sleep(3600)

    async def begin(owner: AssembleOwner, records: Iterable[OutRecord], position: int) -> None:
        found = list(records)
        traces = owner.parts.settings.kafka.topics.traces
        if any(record.topic == traces for record in found):
            assert owner._producer is not None
            owner._producer.commit_transaction = stop
        await commit(owner, found, position)

    AssembleOwner.commit = begin  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        globals()[name]()
    app()
