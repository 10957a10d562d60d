"""`ragmeter worker` with what tests need of it: `python -m tests.kafka.odd_worker NAMES worker`

paused:    Faust forgets the partitions of the traces after the first message, as it has done.
raises:    the state cannot take a trace whose id begins with "poison".
fat:       scores of a trace whose id begins with "fat" take as many bytes as its id says.
slow:      every trace takes a second.
stuck:     a trace whose id begins with "stuck" takes for ever.
hasty:     a slow tier has 2 s for a trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ragmeter.cli.main import app
from ragmeter.kafka.processors import score, slow_tiers
from ragmeter.kafka.processors.score import ScoreProcessor
from ragmeter.kafka.score_records import ScoreRecord
from ragmeter.kafka.state.partition import PartitionState


def paused() -> None:
    handle = ScoreProcessor._handle

    async def then_pause(processor: ScoreProcessor, event: Any) -> None:
        await handle(processor, event)
        consumer = event.app.consumer
        consumer.pause_partitions(
            {tp for tp in consumer.assignment() if tp.topic == event.message.topic}
        )

    ScoreProcessor._handle = then_pause  # type: ignore[assignment,method-assign]


def raises() -> None:
    apply = PartitionState.apply

    def apply_or_not(state: PartitionState, records: Sequence[ScoreRecord]) -> None:
        apply(state, records)  # half of it is in the state, as with a mistake of ours
        for record in records:
            if record.scored.trace_id.startswith("poison"):
                raise ZeroDivisionError("poison")

    PartitionState.apply = apply_or_not  # type: ignore[assignment,method-assign]


def fat() -> None:
    encode = vars(score)["encode_score"]

    def padded(record: ScoreRecord) -> bytes:
        name = record.scored.trace_id
        data: bytes = encode(record)
        return data.ljust(int(name.removeprefix("fat"))) if name.startswith("fat") else data

    vars(score)["encode_score"] = padded


def slow() -> None:
    _before_each(lambda body: 1)


def stuck() -> None:
    _before_each(lambda body: 3600 if b'"stuck' in body else 0)


def _before_each(seconds: Callable[[bytes], float]) -> None:
    handle = ScoreProcessor._handle

    async def late(processor: ScoreProcessor, event: Any) -> None:
        await asyncio.sleep(seconds(event.message.value))
        await handle(processor, event)

    ScoreProcessor._handle = late  # type: ignore[assignment,method-assign]


def hasty() -> None:
    defaults = slow_tiers.InlineTiers.__init__.__kwdefaults__
    assert defaults is not None
    defaults["deadline"] = 2.0


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        globals()[name]()
    app()
