"""Score one trace with the cheap tier and draw it for the slow tiers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragmeter.core.metric_specs import find_helping_spec, find_spec
from ragmeter.core.score import BUILTIN_SCORER, PendingResult, Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.canary.scores import expected_canary_pairs, reference_pairs, score_canary
from ragmeter.metrics.canary.specs import canary_judge_pairs
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.sampler import REST_STRATUM, Sampler, StratumClassifier, drawn_stratum
from ragmeter.trace import Trace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrawTerms:
    """The terms under which a tier drew a trace: all its results carry them."""

    probability: float  # of inclusion, in (0, 1]
    stratum: str  # that the trace was drawn from; empty for canaries


@dataclass(frozen=True, slots=True)
class CheapScores:
    """A trace with its cheap scores, and the slow tiers that drew it.

    Results of slow tiers carry the built-in scores, which are in `cheap` by metric.
    """

    trace: ScoredTrace
    draws: Mapping[Tier, DrawTerms] = field(default_factory=dict)
    cheap: Mapping[str, float] = field(default_factory=dict)


class Scorer:
    """Scores traces with the cheap tier and draws them for the slow tiers.

    Every trace gets exactly one result for each pair of `pairs`: a scorer that raises leaves
    `unscored` with the reason `internal_error`, a tier that does not draw the trace
    `sampled_out`. A tier that draws it brings its results later.

    Canaries are a population of their own: each gets one result for each pair of `canary_pairs`
    and no other. No tier draws one by chance; the judge scores those that its canary budget
    admits.

    Args:
        builtin: Whether to compute the built-in quality metrics besides the operational ones.
        sampler: Makes the draws; needed if there are tiers.
        strata: Classifies traces before the draw; without it, all are in the stratum `rest`.
        ks: The cut-offs of the retrieval metrics of canaries.

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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if tiers and sampler is None:
            raise ValueError("tiers need a sampler")
        probe = PreparedTrace(
            Trace.model_validate({"trace_id": "-", "service": "-", "timestamp": 0})
        )
        functions = [score_cheap, score_builtin] if builtin else [score_cheap]
        self._functions: list[tuple[Callable[[PreparedTrace], list[Score]], list[MetricScorer]]] = [
            (score, [(result.metric, result.scorer) for result in score(probe)])
            for score in functions
        ]
        self._sampler = sampler
        self._strata = strata
        self._tiers: dict[Tier, tuple[MetricScorer, ...]] = {
            tier: tuple(pairs) for tier, pairs in (tiers or {}).items()
        }
        self.pairs = [
            pair
            for pairs in (*(pairs for _, pairs in self._functions), *self._tiers.values())
            for pair in pairs
        ]
        self._ks = sorted(set(ks))
        judged = self._tiers.get("judge", ()) if judge_canaries else ()
        self._reference_pairs = reference_pairs(self._ks)
        self._judged_canary_pairs = canary_judge_pairs(judged)
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
            for pairs in self._tiers.values()
            for metric, _ in pairs
            if (spec := find_helping_spec(metric_specs(), metric)) is not None
        }

    def score_reference(self, trace: Trace) -> list[Score]:
        """Score a canary by its reference; return no scores for other traces."""
        if not trace.canary:
            return []
        return _score_safely(
            lambda prepared: score_canary(prepared, self._ks, self._monotonic),
            self._reference_pairs,
            PreparedTrace(trace),
        )

    def score_cheap(self, trace: Trace) -> list[Score]:
        """Score a trace by all metrics that need no slow tier."""
        prepared = PreparedTrace(trace)
        return [
            score
            for function, pairs in self._functions
            for score in _score_safely(function, pairs, prepared)
        ]

    def score(self, trace: Trace, timestamp: float | None = None) -> CheapScores:
        """Score a trace and draw it for the slow tiers, once: draws depend on earlier ones.

        `timestamp` (Unix seconds) replaces the trace's own if that was corrected.
        """
        if trace.canary:
            return self._score_canary(trace, timestamp)
        results = self.score_cheap(trace)
        if not self._tiers:
            return CheapScores(summarise_trace(trace, results, timestamp))
        assert self._sampler is not None
        cheap = self._helping_scores(results)
        at = trace.timestamp.timestamp() if timestamp is None else timestamp
        # before the draws: the results of a tier must not choose its stratum
        stratum = self._strata.classify(trace, results, at) if self._strata else REST_STRATUM
        draws: dict[Tier, DrawTerms] = {}
        pending: list[PendingResult] = []
        for tier, pairs in self._tiers.items():
            draw = self._sampler.draw(trace, tier, stratum.ratio)
            name = drawn_stratum(stratum.name, draw.probability / trace.probability)
            terms = DrawTerms(draw.probability, name)
            if draw.taken:
                draws[tier] = terms
                pending += [(*pair, name, cheap.get(pair[0])) for pair in pairs]
            else:
                results += _make_unknown(pairs, ScoreState.SAMPLED_OUT, terms, cheap)
        scored = summarise_trace(trace, results, timestamp)
        return CheapScores(replace(scored, pending=tuple(pending)), draws, cheap)

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

    def _score_canary(self, trace: Trace, timestamp: float | None) -> CheapScores:
        results = self.score_reference(trace)
        draws: dict[Tier, DrawTerms] = {}
        pairs, terms = self._judged_canary_pairs, DrawTerms(trace.probability, "")
        if pairs:
            assert self._sampler is not None
            if trace.reference is None:  # recorded by the service itself; the sender's is judged
                results += _make_unknown(
                    pairs, ScoreState.NOT_APPLICABLE, terms, {}, "no_reference"
                )
            elif self._sampler.admits_canary("judge"):
                draws["judge"] = terms
            else:
                results += _make_unknown(pairs, ScoreState.UNSCORED, terms, {}, "budget")
        return CheapScores(summarise_trace(trace, results, timestamp), draws)

    def pending_pairs(self, cheap: CheapScores, tier: Tier) -> tuple[MetricScorer, ...]:
        """Return the pairs that `tier` scores of a trace that it drew."""
        return self._judged_canary_pairs if cheap.trace.canary else self._tiers[tier]

    def add_results(
        self, cheap: CheapScores, tier: Tier, scores: Sequence[Score], missing: str = ""
    ) -> CheapScores:
        """Return `cheap` with the scores of a tier that drew the trace, no longer pending.

        Pairs that `scores` lacks become `unscored` with the reason `missing`.
        """
        pairs, terms = self.pending_pairs(cheap, tier), cheap.draws[tier]
        results = complete_results(
            scores, pairs, terms.probability, missing, stratum=terms.stratum, cheap=cheap.cheap
        )
        trace = replace(
            cheap.trace,
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
    for name in ("model", "prompt_version", "answerable"):
        value = trace.tag(name)
        if value:
            tags[name] = value
    usage = trace.usage
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
        guessed=tuple(trace.guessed or ()),
    )


def complete_results(
    scores: Sequence[Score],
    pairs: Sequence[MetricScorer],
    probability: float,
    missing: str = "internal_error",
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
    return [
        Score(
            metric,
            scorer,
            state,
            reason=reason,
            probability=terms.probability,
            stratum=terms.stratum,
            cheap=cheap.get(metric),
        )
        for metric, scorer in pairs
    ]
