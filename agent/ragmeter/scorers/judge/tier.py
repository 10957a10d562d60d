"""The judge tier: everything that an LLM judge is asked about one trace, and the scores from it.

The families of questions run side by side, and so do the calls of each that need nothing of one
another. A call that fails leaves a reason in what it belongs to; a family that breaks leaves
`internal_error` in its own metrics. Nothing else is touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ragmeter.config.scoring import JudgeFamily, JudgeSettings
from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.score import JUDGE_SCORER, NoScore, Score, make_score
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.metrics import ranking
from ragmeter.metrics.canary.answers import answers_to_judge
from ragmeter.metrics.cited_statements import CITATION_METRICS
from ragmeter.metrics.claims import CLAIM_METRICS, FACT_METRICS
from ragmeter.metrics.labelled import labelled_metric_names
from ragmeter.metrics.nuggets import AUTONUGGETIZER, NUGGET_METRICS
from ragmeter.reasons import Reason
from ragmeter.scorers.judge import passages
from ragmeter.scorers.judge.annotation import score_annotation
from ragmeter.scorers.judge.attempts import score_attempt
from ragmeter.scorers.judge.calls import (
    FamilyScores,
    Fingerprints,
    ItemKind,
    ListedItems,
    score_fingerprint,
)
from ragmeter.scorers.judge.citations import score_citations
from ragmeter.scorers.judge.claims import score_claims
from ragmeter.scorers.judge.facts import score_facts
from ragmeter.scorers.judge.nuggets import judge_right_answers, score_nuggets
from ragmeter.scorers.llm.admission import TRACE_BEGUN
from ragmeter.scorers.llm.questions import QuestionAnswerer
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

_FamilyRun = Callable[[], Coroutine[Any, Any, FamilyScores | NoScore]]


# Fingerprints of scores remembered: some of each family, for many changes of the served model.
_MAX_FINGERPRINTS = 4096


class JudgeTier:
    """Scores traces by asking a judge, as `settings` say; a `TierScorer`, `ReferenceMeasurer`."""

    tier: Tier = "judge"

    def __init__(self, judge: QuestionAnswerer, settings: JudgeSettings) -> None:
        self._ks = sorted(set(settings.k))
        families: dict[JudgeFamily, tuple[str, Sequence[str]]] = {
            "relevance": (ranking.UMBRELA, ranking.ranking_names(self._ks)),
            "answered": (JUDGE_SCORER, ["answered"]),
            "citations": (JUDGE_SCORER, CITATION_METRICS),
            "nuggets": (AUTONUGGETIZER, NUGGET_METRICS),
            "claims": (JUDGE_SCORER, CLAIM_METRICS),
            "facts": (JUDGE_SCORER, FACT_METRICS),
            "context": (ranking.UMBRELA, ranking.CONTEXT_METRICS),
            "context_recall": (JUDGE_SCORER, ranking.CONTEXT_RECALL),
            "annotation": (ANNOTATION, labelled_metric_names(self._ks, verdicts=False)),
        }
        self.judge = judge
        # fingerprints of the verdicts behind those of scores
        self._behind: dict[str, Fingerprints] = {}
        self._pairs: dict[JudgeFamily, list[MetricScorer]] = {
            family: [(name, scorer) for name in names]
            for family, (scorer, names) in families.items()
            if family in settings.metrics
        }

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        """The (metric, scorer) pairs that every trace gets a result for."""
        return [pair for pairs in self._pairs.values() for pair in pairs]

    async def measure(self, trace: Trace, cost: ScoringCost) -> Trace:
        """Return a canary with the judge's word on right answers that have no keywords."""
        right = answers_to_judge(trace)
        if not right or trace.reference is None:
            return trace
        value = await judge_right_answers(self.judge, trace, right, cost)
        missing = isinstance(value, NoScore)
        update = {"judge_failed": True} if missing else {"judged_facts": value}
        return trace.model_copy(update={"reference": trace.reference.model_copy(update=update)})

    def verdict_fingerprints(self, fingerprint: str) -> Fingerprints:
        """Return the fingerprints of the verdicts behind that of a score."""
        return self._behind.get(fingerprint, (fingerprint,))

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Return one result for each of `pairs`, in their order; `cost` grows by all calls."""
        return (await self.judge_trace(trace, cost))[0]

    async def judge_trace(self, trace: Trace, cost: ScoringCost) -> tuple[list[Score], ListedItems]:
        """Return the results, and the claims and nuggets that the judge has labelled."""
        TRACE_BEGUN.set(asyncio.get_running_loop().time())
        judge = self.judge
        ks = self._ks
        grading = passages.PassageGrading(judge, trace, cost)
        runs: dict[JudgeFamily, _FamilyRun] = {
            "relevance": lambda: passages.score_relevance(trace, grading, ks),
            "answered": lambda: score_attempt(judge, trace, cost),
            "citations": lambda: score_citations(judge, trace, cost),
            "nuggets": lambda: score_nuggets(judge, trace, cost, grading),
            "claims": lambda: score_claims(judge, trace, cost),
            "facts": lambda: score_facts(judge, trace, cost),
            "context": lambda: passages.score_context(trace, grading),
            "context_recall": lambda: passages.score_context_recall(judge, trace, cost),
            "annotation": lambda: score_annotation(judge, trace, ks, cost),
        }
        results = await asyncio.gather(
            *(runs[family]() for family in self._pairs), return_exceptions=True
        )
        out: list[Score] = []
        items: dict[ItemKind, Sequence[tuple[str, str]]] = {}
        for (family, pairs), result in zip(self._pairs.items(), results, strict=True):
            if isinstance(result, Exception):
                log.error(
                    "judging %s of trace %r failed", family, trace.trace_id[:80], exc_info=result
                )
                result = NoScore(Reason.INTERNAL_ERROR)
            elif isinstance(result, BaseException):
                raise result
            if isinstance(result, FamilyScores):
                items |= result.items
            out += [self._score(trace, pair, result) for pair in pairs]
        return out, items

    def _score(self, trace: Trace, pair: MetricScorer, result: FamilyScores | NoScore) -> Score:
        name, scorer = pair
        if isinstance(result, NoScore):
            score = make_score(name, trace, result, scorer)
        else:
            value = result.values[name]
            detail = result.details.get(name)
            score = make_score(name, trace, value, scorer, detail=detail)
            fingerprint = score_fingerprint(name, result.fingerprints[name])
            if fingerprint is not None and not isinstance(value, NoScore):
                score.fingerprint = fingerprint
                if len(self._behind) >= _MAX_FINGERPRINTS:
                    self._behind.clear()
                self._behind[fingerprint] = result.fingerprints[name]
        score.probability = 1.0  # that of the tier's draw, which is not known here
        return score
