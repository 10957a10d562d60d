"""Answers of the running agent on their way to be compared: their words with the scores, what is
embedded of them later, by a slow tier.
"""

from __future__ import annotations

from functools import partial

from agent.aggregate import Aggregator
from agent.config import Settings
from agent.consistency.wording import Wordings
from agent.second_stage import SecondStage
from agent.store.rows import Draw, Queued
from agent.tier_worker import Finished
from agent.trace import ScoredTrace, Trace, Wording

__all__ = ["Comparing"]


class Comparing:
    """Raises ValueError where the key of the hashes cannot be read."""

    def __init__(self, settings: Settings, slow: SecondStage) -> None:
        self._wordings = Wordings(settings.consistency, settings.privacy)
        self._slow = slow

    def wording(self, trace: Trace, aggregator: Aggregator) -> Wording | str:
        """Of the answer, or why there is none: see `Wordings.of`."""
        return self._wordings.of(trace, partial(self._remembers, aggregator, trace.service))

    @staticmethod
    def _remembers(aggregator: Aggregator, service: str, query: str) -> bool:
        return aggregator.consistency.wants(aggregator.label(service), query)

    def draws(self, queued: Queued, scored: ScoredTrace, aggregator: Aggregator) -> list[Draw]:
        """The row of a trace that was applied just now, whose answer is remembered and is to be
        embedded."""
        wording, scored.wording = scored.wording, ""
        if isinstance(wording, str) or not self._slow.embeds:
            return []
        draw = self._slow.embed(queued, scored.service)
        if draw is None:
            aggregator.embedded(scored.service, wording, scored.timestamp, "", "shed")
            return []
        return [draw]

    def embedded(self, one: Finished, aggregator: Aggregator) -> None:
        """Count what came of a row that `draws` has given."""
        draw, trace = one.drawn.draw, one.trace
        said: Wording | str = "" if trace is None else self._wordings.of(trace)
        context = "" if trace is None else self._wordings.context(trace)
        aggregator.embedded(draw.service, said, draw.timestamp, context, one.vectors)
