"""Messages as a consumer gives them, and what a message processor makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.core.tiers import MetricScorer
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.otlp import OtlpSplitter
from ragmeter.kafka.processors.score import MessageProcessor, Outcome
from ragmeter.kafka.score_records import ScoreRecord
from ragmeter.scoring.inline_tiers import InlineTiers

__all__ = ["Processing", "message"]


def message(value: bytes, offset: int = 5, **changes: Any) -> Any:
    fields = {"key": b"k", "topic": "rag.traces", "partition": 3, "timestamp": None}
    fields |= {"timestamp_type": 1, "headers": ()}
    return SimpleNamespace(**{**fields, "value": value, "offset": offset, **changes})


class Processing:
    """A message processor; `take` returns the records that become of messages.

    `judge` answers in place of the configured one; `ahead` messages were scored by threads.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        otlp: OtlpSplitter | None = None,
        judge: Any = None,
        outputs: AgentOutputs = AgentOutputs(),  # noqa: B008
    ) -> None:
        self.settings = settings or AgentSettings()
        self.judge = judge
        self.ahead = 0
        self.counters = Counters()
        self.otlp = otlp
        self.outputs = outputs

    def take(self, *messages: Any, feedback: bool = False) -> list[OutRecord]:
        return asyncio.run(self._take(messages, feedback))

    async def _take(self, messages: Sequence[Any], feedback: bool) -> list[OutRecord]:
        settings, counters = self.settings, self.counters
        async with (
            TracePreparer(settings, counters) as preparer,
            InlineTiers(settings, counters) as tiers,
        ):
            dead = DeadLetterTopic(settings.kafka.topics.dead, preparer, counters)
            processor = MessageProcessor(
                settings,
                dead,
                counters,
                preparer,
                tiers,
                otlp=self.otlp,
                outputs=self.outputs,
                parts=PARTS,
            )
            records: list[OutRecord] = []
            scored: list[tuple[Any, ScoreRecord]] = []
            if self.judge is not None:
                tiers._sampler.paced = False  # every trace is drawn
                tiers.tier_scorers["judge"] = self.judge
            if feedback:
                for one in messages:
                    one.topic = settings.kafka.topics.feedback
            ahead = await processor.score_ahead(messages)
            self.ahead = sum(one is not None for one in ahead)
            for one, scores in zip_longest(messages, ahead):
                found: Any = processor.handle(one, scores)
                outcome: Outcome = await found if asyncio.iscoroutine(found) else found
                if isinstance(outcome, ScoreRecord):
                    scored.append((one, outcome))
                else:
                    records += outcome
            records += [one.record for one in processor.encode(scored)]
            processor.publish(
                [one for _, one in scored], records
            )  # as an owner does after its commit
            return records

    def pairs(self) -> list[MetricScorer]:
        """What every trace has a result for."""

        async def read() -> list[MetricScorer]:
            return list(InlineTiers(self.settings, self.counters).scorer.pairs)

        return asyncio.run(read())

    def letters(self, *messages: Any, **options: Any) -> list[str]:
        """Reasons of the dead letters; there is nothing else."""
        found = self.take(*messages, **options)
        assert {one.topic for one in found} <= {self.settings.kafka.topics.dead}
        return [one.headers["reason"].decode() for one in found]
