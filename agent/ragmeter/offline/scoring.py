"""Score traces offline, by every tier and without sampling."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counts
from ragmeter.core.judging import TraceJudging
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.tiers import ReferenceMeasurer, ScoringCost, Tier, TierScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.canary.specs import abstention_pairs, judged_abstention, leave_to_judge
from ragmeter.metrics.costs import list_prices
from ragmeter.metrics.language import NOT_MEASURED
from ragmeter.offline.scoring_summary import ScoringSummary
from ragmeter.offline.whole_file import FileFeedback
from ragmeter.scorers.judge.second_opinion import DISAGREEMENT_METRIC
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.scoring.slow_tiers import score_tier
from ragmeter.trace import Trace

log = logging.getLogger(__name__)


class OfflineScorer:
    """Scores traces by every tier; an asynchronous context manager, to be entered once.

    Metrics against a reference are computed for every trace that has one, canary or not.

    Args:
        tiers: The slow tiers (judge, model) in use.
        labels: Feedback to join to the traces.
        rejudge: Redact nothing, as the traces are redacted, and score by `tiers` and a reference.

    Attributes:
        summary: Counts of what was scored so far.
        expected: (metric, scorer) of every result that a trace may have.
    """

    def __init__(
        self,
        settings: Settings,
        tiers: Mapping[Tier, TierScorer] | None = None,
        labels: FileFeedback | None = None,
        rejudge: bool = False,
    ) -> None:
        self.summary = ScoringSummary()
        self._rejudge = rejudge
        self.counts: Counts = {}  # of the redaction
        self._tiers = tiers or {}
        self._labels = labels
        self._scorer = Scorer(settings.builtin_scorers, ks=settings.judge.k)
        self._scorer.prices = list_prices().with_own(settings.costs.as_rows())
        self._redactor = Redactor(settings.privacy)
        self._content = ContentPolicy(settings.privacy)
        self._concurrency = settings.judge.concurrency if tiers else 1
        self._stack = contextlib.AsyncExitStack()
        self.expected = [
            *(() if rejudge else self._scorer.pairs),
            *(pair for tier in self._tiers.values() for pair in tier.pairs),
            *self._scorer.canary_pairs,
            *(pair for tier in self._tiers.values() for pair in abstention_pairs(tier.pairs)),
            *(labels.pairs if labels is not None else ()),
        ]

    async def __aenter__(self) -> Self:
        for tier in self._tiers.values():
            if isinstance(tier, contextlib.AbstractAsyncContextManager):
                await self._stack.enter_async_context(tier)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def score_all(
        self, traces: Iterable[DecodedTrace]
    ) -> AsyncIterator[tuple[ScoredTrace, Trace | None]]:
        """Score traces, several at a time, and yield the results in the order of the traces.

        Yields:
            The scored trace, and the redacted trace where `privacy.content` lets its texts be kept.
        """
        under_way: deque[tuple[asyncio.Task[ScoredTrace], Trace]] = deque()

        async def next_result() -> tuple[ScoredTrace, Trace | None]:
            task, trace = under_way.popleft()
            scored = self._content.scored(await task)
            self.summary.traces += 1
            self.summary.unread += any(one.reason == NOT_MEASURED.reason for one in scored.results)
            return scored, trace if self._content.full else None

        for item in traces:
            trace = item.trace if self._rejudge else self._redactor.trace(item, self.counts).trace
            under_way.append((asyncio.create_task(self.score(trace)), trace))
            while len(under_way) >= self._concurrency:
                yield await next_result()
        while under_way:
            yield await next_result()

    async def score(self, trace: Trace) -> ScoredTrace:
        """Score one trace."""
        spent = ScoringCost()
        trace = await self.measure(trace, spent)
        results: list[Score] = []
        tiers = self._tiers.values()
        if not self._rejudge:
            results += self._scorer.score_cheap(trace)
        slow_results = await asyncio.gather(*(self._run_tier(tier, trace, spent) for tier in tiers))
        judging = None
        for scores, how in slow_results:
            results += scores
            judging = judging or how
        if trace.canary:
            judged = judged_abstention(trace, results)
            results += self._scorer.score_reference(trace)
            if any(one.value is not None for one in judged):
                results = leave_to_judge(results)
            results += judged
        if self._labels is not None:
            results += self._labels.scores(trace)
        if judging is not None and not judging.uses:
            judging = None  # nothing had to be asked
        self.summary.judging.add(judging)
        return summarise_trace(trace, results)._replace(judging=judging)

    async def measure(self, trace: Trace, cost: ScoringCost) -> Trace:
        """Return a canary with what the tiers measure for its reference, another trace as it is."""
        for tier in self._tiers.values():
            if trace.canary and isinstance(tier, ReferenceMeasurer):
                trace = await tier.measure(trace, cost)
        return trace

    async def _run_tier(
        self, tier: TierScorer, trace: Trace, spent: ScoringCost
    ) -> tuple[list[Score], TraceJudging | None]:
        scores: list[Score] = []
        cost = ScoringCost()
        began = time.time()
        start = time.monotonic()
        try:
            scores = await score_tier(tier, trace, cost)
        except Exception:
            log.exception("the %s tier failed on trace %r", tier.tier, trace.trace_id[:80])
        scores = complete_results(scores, tier.pairs, trace.probability)
        self.summary.add(tier.tier, scores)
        instruments = getattr(tier, "instruments", None)
        if instruments is None:  # it is no judge
            return scores, None
        cost.add(spent)
        fingerprints = [score.fingerprint for score in scores if score.fingerprint]
        judging = TraceJudging(began, time.monotonic() - start, cost.uses)
        for score in scores:
            if score.metric == DISAGREEMENT_METRIC and score.detail:
                fingerprints += score.detail["second"]
                judging.compared = score.detail["compared"]
        judging.instruments = instruments(fingerprints)
        return scores, judging
