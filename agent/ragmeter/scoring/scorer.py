"""Score one trace with the cheap tier, and draw it for the tiers that are sampled.

Scores of one trace depend on no other trace (`TraceScores`), so any thread may compute them; draws
depend on those before (`Scorer.draw`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ragmeter.core.metric_specs import find_helping_spec, find_spec
from ragmeter.core.score import (
    BUILTIN_SCORER,
    ESTIMATE_SCORER,
    PendingResult,
    Score,
    ScoredTrace,
    ScoreState,
    build_score,
    share_score,
)
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.canary.scores import expected_canary_pairs, reference_pairs, score_canary
from ragmeter.metrics.canary.specs import abstention_pairs, canary_judge_pairs, leave_to_judge
from ragmeter.metrics.costs import COST, list_prices, score_estimate
from ragmeter.metrics.labelled import PEOPLE_PAIRS, PEOPLE_STRATUM
from ragmeter.metrics.merged_labels import ranked_passage_keys
from ragmeter.metrics.registry import metric_specs
from ragmeter.reasons import Reason
from ragmeter.sampling.sampler import (
    REST_STRATUM,
    Sampler,
    SamplingDraw,
    Stratum,
    StratumClassifier,
    drawn_stratum,
)
from ragmeter.scoring.dependence import cluster_hashes
from ragmeter.trace import Trace
from ragmeter.windows.sums import upstream_stratum

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrawTerms:
    """The terms under which a tier drew a trace: all its results carry them."""

    probability: float  # of inclusion, in (0, 1]
    stratum: str  # that the trace was drawn from; empty for canaries


class CheapScores(NamedTuple):
    """A trace with its cheap scores, and the slow tiers that drew it.

    Results of slow tiers carry the built-in scores, which are in `cheap` by metric.
    """

    trace: ScoredTrace
    draws: Mapping[Tier, DrawTerms] = {}
    cheap: Mapping[str, float] = {}


@dataclass(slots=True)
class TraceScores:
    """The scores of one trace that depend on no other trace: the input of `Scorer.draw`.

    Args:
        summary: The trace with the results of the cheap tier, or of its reference for a canary.
        failed: As `Trace.failed`.
        referenced: Whether the trace has a reference.
        prepared: The trace.
        builtin: The results of the built-in scorers; None if they were not computed.
    """

    summary: ScoredTrace
    failed: bool
    referenced: bool
    prepared: PreparedTrace = field(compare=False, repr=False)
    builtin: list[Score] | None = None

    @property
    def trace_id(self) -> str:
        """Id of the trace."""
        return self.summary.trace_id

    @property
    def service(self) -> str:
        """Service of the trace, as it was sent."""
        return self.summary.service

    @property
    def probability(self) -> float:
        """Upstream inclusion probability of the trace."""
        return self.summary.probability

    def tag(self, name: str) -> str | None:
        """Return a tag, as `Trace.tag` does."""
        return self.summary.tags.get(name)


class Scorer:
    """Scores traces with the cheap tier and draws them for the tiers that are sampled.

    Every trace gets exactly one result for each pair of `pairs`: a scorer that raises leaves
    `unscored` with the reason `internal_error`, a tier that does not draw the trace
    `sampled_out`. A slow tier that draws it brings its results later.

    Canaries are a population of their own: each gets one result for each pair of `canary_pairs`
    and no other. No tier draws one by chance; the judge scores those that its canary budget
    admits.

    Args:
        builtin: Whether to compute the built-in quality metrics besides the operational ones.
        sampler: Makes the draws; needed if there are tiers. Without it, the built-in metrics are
            computed for every trace.
        strata: Classifies traces before the draw; without it, all are in the stratum `rest`.
        ks: The cut-offs of the retrieval metrics of canaries.
        people: Whether people's labels are drawn: every trace counts in their strata.

    Raises:
        ValueError: There are tiers but no sampler, or a metric is not in the registry.
    """

    def __init__(
        self,
        builtin: bool = True,
        *,
        sampler: Sampler | None = None,
        tiers: Mapping[Tier, Sequence[MetricScorer]] | None = None,
        strata: StratumClassifier | None = None,
        ks: Sequence[int] = (5,),
        judge_canaries: bool = True,
        people: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if tiers and sampler is None:
            raise ValueError("tiers need a sampler")
        probe = PreparedTrace(
            Trace.model_validate({"trace_id": "-", "service": "-", "timestamp": 0})
        )
        self.prices = (
            list_prices()
        )  # by which costs are estimated; those of the settings replace it
        self.cheap_pairs = [(result.metric, result.scorer) for result in score_cheap(probe)]
        # an estimated cost stands beside the given one, before users' own metrics
        self._estimate_at = self.cheap_pairs.index((COST, BUILTIN_SCORER)) + 1
        self.cheap_pairs.insert(self._estimate_at, (COST, ESTIMATE_SCORER))
        self.builtin_pairs = [
            (result.metric, result.scorer) for result in (score_builtin(probe) if builtin else ())
        ]
        self._sampler = sampler
        self._strata = strata
        self._tiers: dict[Tier, tuple[MetricScorer, ...]] = {
            tier: tuple(pairs) for tier, pairs in (tiers or {}).items()
        }
        self._people = PEOPLE_PAIRS if people else ()
        slow = (*self._tiers.values(), self._people)
        self.pairs = [
            pair for pairs in (self.cheap_pairs, self.builtin_pairs, *slow) for pair in pairs
        ]
        self._ks = sorted(set(ks))
        judged = self._tiers.get("judge", ()) if judge_canaries else ()
        self.reference_pairs = reference_pairs(self._ks)
        self._judged_canary_pairs = canary_judge_pairs(judged)
        self._judges_abstention = bool(abstention_pairs(judged))
        self.canary_pairs: tuple[MetricScorer, ...] = expected_canary_pairs(
            self._ks, judged, judge_canaries
        )
        self._monotonic = monotonic
        unknown = {
            metric
            for metric, _ in (*self.pairs, *self.canary_pairs)
            if find_spec(metric_specs(), metric) is None
        }
        if unknown:
            raise ValueError(f"not in the registry of metrics: {', '.join(sorted(unknown))}")
        self._helped_by = {
            metric: spec.name
            for pairs in slow
            for metric, _ in pairs
            if (spec := find_helping_spec(metric_specs(), metric)) is not None
        }

    def score_reference(self, trace: Trace) -> list[Score]:
        """Score a canary by its reference; return no scores for other traces."""
        if not trace.canary:
            return []
        return _score_safely(
            lambda prepared: score_canary(prepared, self._ks, self._monotonic),
            self.reference_pairs,
            PreparedTrace(trace),
        )

    def score_cheap(self, trace: Trace) -> list[Score]:
        """Score a trace by all metrics that need no slow tier."""
        prepared = PreparedTrace(trace)
        return [*self._score_operational(prepared), *self.score_builtin(prepared)]

    def _score_operational(self, prepared: PreparedTrace) -> list[Score]:
        return _score_safely(self._score_request, self.cheap_pairs, prepared)

    def _score_request(self, prepared: PreparedTrace) -> list[Score]:
        scores = score_cheap(prepared)
        scores.insert(self._estimate_at, score_estimate(prepared.trace, self.prices))
        return scores

    def score_builtin(self, prepared: PreparedTrace) -> list[Score]:
        """Score a trace by the built-in scorers."""
        if not self.builtin_pairs:
            return []
        return _score_safely(score_builtin, self.builtin_pairs, prepared)

    def score(self, trace: Trace, timestamp: float | None = None) -> CheapScores:
        """Score a trace and draw it for the sampled tiers, once: draws depend on earlier ones.

        `timestamp` (Unix seconds) replaces the trace's own if that was corrected.
        """
        return self.draw(self.score_alone(trace, timestamp))

    def score_alone(self, trace: Trace, timestamp: float | None = None) -> TraceScores:
        """Score a trace by what needs no draw; `timestamp` replaces its own."""
        prepared = PreparedTrace(trace)
        results = self.score_reference(trace) if trace.canary else self._score_operational(prepared)
        return TraceScores(
            summarise_trace(trace, results, timestamp),
            trace.failed,
            trace.reference is not None,
            prepared,
        )

    def draw(self, scores: TraceScores) -> CheapScores:
        """Draw a trace for the sampled tiers, once: draws depend on earlier ones."""
        trace = scores.summary
        if trace.canary:
            return self._draw_canary(scores)
        results = [*trace.results, *self._builtin_results(scores)]
        cheap = self._helping_scores(results) if self._helped_by else {}
        if self._people:
            # labels come as feedback, if at all; what they stand for is counted now
            name = upstream_stratum(PEOPLE_STRATUM, trace.probability)
            terms = DrawTerms(trace.probability, name)
            results += _make_unknown(self._people, ScoreState.SAMPLED_OUT, terms, cheap)
        if not self._tiers:
            return CheapScores(_complete_trace(scores, results), {}, cheap)
        if self._sampler is None:
            raise RuntimeError("sampler is missing")
        # before the draws: the results of a tier must not choose its stratum
        stratum = self._classify(scores, results)
        draws: dict[Tier, DrawTerms] = {}
        pending: list[PendingResult] = []
        for tier, pairs in self._tiers.items():
            draw, terms = self._draw_tier(scores, tier, stratum)
            if draw.taken:
                draws[tier] = terms
                pending += [(*pair, terms.stratum) for pair in pairs]
            else:
                state = ScoreState.SHED if draw.shed else ScoreState.SAMPLED_OUT
                results += _make_unknown(pairs, state, terms, cheap)
        return CheapScores(_complete_trace(scores, results, pending), draws, cheap)

    def _builtin_results(self, scores: TraceScores) -> list[Score]:
        taken, terms = self.draw_builtin(scores)
        if not taken:
            return _make_unknown(self.builtin_pairs, ScoreState.SAMPLED_OUT, terms, {})
        results = scores.builtin
        if results is None:
            results = self.score_builtin(scores.prepared)
        if not terms.stratum:
            return results
        share = terms.probability / scores.probability
        return complete_results(results, self.builtin_pairs, share, stratum=terms.stratum)

    def draw_builtin(self, scores: TraceScores) -> tuple[bool, DrawTerms]:
        """Return whether the built-in scorers score a trace, and the terms.

        A trace that is drawn with certainty belongs to no stratum. This depends on no earlier
        draw: another thread may ask as well, to compute only what is needed.
        """
        sampler = self._sampler
        if sampler is None or sampler.rate("builtin", scores.service) >= 1:
            return True, DrawTerms(scores.probability, "")
        # without the scores that are drawn for here, no trace is `low`
        draw, terms = self._draw_tier(
            scores, "builtin", self._classify(scores, scores.summary.results)
        )
        certain = terms.probability >= scores.probability
        return draw.taken, DrawTerms(terms.probability, "") if certain else terms

    def _classify(self, scores: TraceScores, results: Sequence[Score]) -> Stratum:
        if self._strata is None:
            return REST_STRATUM
        return self._strata.classify(scores, results, scores.summary.timestamp)

    def _draw_tier(
        self, scores: TraceScores, tier: Tier, stratum: Stratum
    ) -> tuple[SamplingDraw, DrawTerms]:
        if self._sampler is None:
            raise RuntimeError("sampler is missing")
        draw = self._sampler.draw(scores, tier, stratum.ratio, scores.summary.timestamp)
        name = drawn_stratum(stratum.name, draw.probability / scores.probability)
        name = upstream_stratum(name, scores.probability)
        return draw, DrawTerms(draw.probability, name)

    def _helping_scores(self, results: Sequence[Score]) -> dict[str, float]:
        builtin = {
            score.metric: score.value
            for score in results
            if score.scorer == BUILTIN_SCORER
            and score.state is ScoreState.SCORED
            and score.value is not None
        }
        return {
            metric: builtin[helping]
            for metric, helping in self._helped_by.items()
            if helping in builtin
        }

    def _draw_canary(self, scores: TraceScores) -> CheapScores:
        trace = scores.summary
        results = list(trace.results)
        draws: dict[Tier, DrawTerms] = {}
        pairs = self._judged_canary_pairs
        terms = DrawTerms(trace.probability, "")
        if pairs:
            if self._sampler is None:
                raise RuntimeError("sampler is missing")
            if not scores.referenced:  # recorded by the service itself; the sender's is judged
                results += _make_unknown(
                    pairs=pairs,
                    state=ScoreState.NOT_APPLICABLE,
                    terms=terms,
                    cheap={},
                    reason=Reason.NO_REFERENCE,
                )
            elif self._sampler.admits_canary("judge"):
                draws["judge"] = terms
                results = leave_to_judge(results) if self._judges_abstention else results
            else:
                results += _make_unknown(
                    pairs=pairs,
                    state=ScoreState.UNSCORED,
                    terms=terms,
                    cheap={},
                    reason=Reason.BUDGET,
                )
        return CheapScores(_complete_trace(scores, results), draws)

    def pending_pairs(self, cheap: CheapScores, tier: Tier) -> tuple[MetricScorer, ...]:
        """Return the pairs that `tier` scores of a trace that it drew."""
        return self._judged_canary_pairs if cheap.trace.canary else self._tiers[tier]

    def add_results(
        self, cheap: CheapScores, tier: Tier, scores: Sequence[Score], missing: str = ""
    ) -> CheapScores:
        """Return `cheap` with the scores of a tier that drew the trace, no longer pending.

        Pairs that `scores` lacks become `unscored` with the reason `missing`.
        """
        pairs = self.pending_pairs(cheap, tier)
        terms = cheap.draws[tier]
        results = complete_results(
            scores, pairs, terms.probability, missing, stratum=terms.stratum, cheap=cheap.cheap
        )
        trace = cheap.trace._replace(
            results=[*cheap.trace.results, *results],
            pending=tuple(row for row in cheap.trace.pending if row[:2] not in pairs),
        )
        draws = {other: terms for other, terms in cheap.draws.items() if other != tier}
        return CheapScores(trace, draws, cheap.cheap)

    def shed(self, cheap: CheapScores, tier: Tier) -> CheapScores:
        """Return `cheap` with shed results in place of a draw that will not be scored."""
        pairs = self.pending_pairs(cheap, tier)
        return self.add_results(cheap, tier, [Score(*pair, ScoreState.SHED) for pair in pairs])


def summarise_trace(
    trace: Trace, results: Sequence[Score], timestamp: float | None = None
) -> ScoredTrace:
    """Return the numbers of a trace that aggregation needs; `timestamp` replaces its own."""
    tags = dict(trace.tags)
    if trace.model:
        tags["model"] = trace.model
    if trace.prompt_version:
        tags["prompt_version"] = trace.prompt_version
    if trace.reference is not None and (answerable := trace.tag("answerable")):
        tags["answerable"] = answerable
    usage = trace.usage
    cluster, tenant = cluster_hashes(trace)
    return ScoredTrace(
        trace_id=trace.trace_id,
        service=trace.service,
        timestamp=trace.timestamp.timestamp() if timestamp is None else timestamp,
        status=trace.status,
        results=results,
        probability=trace.probability,
        timings={k: v for k, v in (trace.timings or {}).items() if v is not None},
        tags=tags,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cost_usd=usage.cost_usd if usage else None,
        canary=trace.canary,
        passages=ranked_passage_keys(trace),
        guessed=tuple(trace.guessed or ()),
        cluster=cluster,
        tenant=tenant,
    )


def _complete_trace(
    scores: TraceScores, results: Sequence[Score], pending: Sequence[PendingResult] = ()
) -> ScoredTrace:
    return scores.summary._replace(results=results, pending=tuple(pending))


def complete_results(
    scores: Sequence[Score],
    pairs: Sequence[MetricScorer],
    probability: float,
    missing: str = Reason.INTERNAL_ERROR,
    *,
    stratum: str = "",
    cheap: Mapping[str, float] | None = None,
) -> list[Score]:
    """Return one result for each of `pairs`, in their order, whatever a scorer returned.

    Args:
        scores: The scorer's own; those of other pairs are dropped.
        pairs: The pairs to complete.
        probability: Inclusion probability of the trace; a score's own share multiplies it.
        missing: The reason of results that `scores` lacks, which are `unscored`.
        stratum: The stratum that the trace was drawn from.
        cheap: The built-in scores by metric.
    """
    by_pair = {(score.metric, score.scorer): score for score in scores}
    results = []
    for pair in pairs:
        score = by_pair.get(pair) or Score(*pair, ScoreState.UNSCORED, reason=missing)
        results.append(
            replace(
                score,
                probability=probability * score.probability,
                stratum=stratum,
                cheap=cheap.get(score.metric) if cheap else score.cheap,
            )
        )
    return results


def _score_safely(
    score: Callable[[PreparedTrace], list[Score]],
    pairs: Sequence[MetricScorer],
    prepared: PreparedTrace,
) -> list[Score]:
    trace = prepared.trace
    try:
        return score(prepared)
    except Exception:
        log.exception("scoring of trace %r failed", trace.trace_id[:80])
        return complete_results([], pairs, trace.probability)


def _make_unknown(
    pairs: Sequence[MetricScorer],
    state: ScoreState,
    terms: DrawTerms,
    cheap: Mapping[str, float],
    reason: str | None = None,
) -> list[Score]:
    """Return a result without a value for each of `pairs`."""
    probability, stratum = terms.probability, terms.stratum
    end = (state, None, reason)
    return [
        share_score(metric, scorer, end, (probability, stratum))
        if (helping := cheap.get(metric)) is None
        else build_score(
            metric,
            scorer,
            state,
            reason=reason,
            probability=probability,
            stratum=stratum,
            cheap=helping,
        )
        for metric, scorer in pairs
    ]
