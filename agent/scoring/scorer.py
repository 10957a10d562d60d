"""Score one trace with the cheap tier and draw it for the slow tiers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.metrics.builtin import score_builtin, score_cheap
from ragmeter.metrics.canary.scores import (
    canary_judge_pairs,
    expected_canary_pairs,
    reference_pairs,
    score_canary,
)
from ragmeter.metrics.registry import METRICS
from ragmeter.sampling.sampler import REST_STRATUM, Sampler, StratumClassifier, drawn_stratum
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.score")


@dataclass(slots=True)
class CheapScores:
    """What is known of a trace at once, and the tiers that have drawn it, each with the
    inclusion probability of what it will find. `strata` says by tier what it was drawn from and
    `cheap` has its built-in scores by metric: the results of those tiers carry both."""

    trace: ScoredTrace
    drawn: dict[Tier, float] = field(default_factory=dict)
    strata: dict[Tier, str] = field(default_factory=dict)
    cheap: dict[str, float] = field(default_factory=dict)


class Scorer:
    """Scores every metric of the cheap tier and the built-in quality metrics if wanted, and draws
    for the `tiers` (by name: the (metric, scorer) pairs they answer for).

    `expected` are the pairs that every trace gets exactly one result for, whatever happens: a
    part that raises leaves `unscored` with reason `internal_error`, and a tier that has not drawn
    the trace `sampled_out`. What a tier has drawn is scored elsewhere.

    Canaries are a population of their own: each gets one result for each pair of `canaries`, and
    nothing else. No tier draws one by chance; the judge is asked about each that its part of the
    budget has room for, if `judge_canaries`. `ks` are the cut-offs of their retrieval.
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
        probe = Trace.model_validate({"trace_id": "-", "service": "-", "timestamp": 0})
        parts = [score_cheap, score_builtin] if builtin else [score_cheap]
        self._parts: list[tuple[Callable[[Trace], list[Score]], list[MetricScorer]]] = [
            (part, [(score.metric, score.scorer) for score in part(probe)]) for part in parts
        ]
        self._sampler = sampler
        self._strata = strata
        self.tiers: dict[Tier, tuple[MetricScorer, ...]] = {
            tier: tuple(pairs) for tier, pairs in (tiers or {}).items()
        }
        self.expected = [pair for _, pairs in self._parts for pair in pairs]
        self.expected += [pair for pairs in self.tiers.values() for pair in pairs]
        self._ks = sorted(set(ks))
        judged = self.tiers.get("judge", ()) if judge_canaries else ()
        self._of_reference = reference_pairs(self._ks)
        self._judged = canary_judge_pairs(judged)
        self.canaries: tuple[MetricScorer, ...] = expected_canary_pairs(
            self._ks, judged, judge_canaries
        )
        self._monotonic = monotonic
        pairs = (*self.expected, *self.canaries)
        unknown = {metric for metric, _ in pairs if find_spec(METRICS, metric) is None}
        if unknown:
            raise ValueError(f"not in the registry of metrics: {', '.join(sorted(unknown))}")

    @staticmethod
    def _run(
        part: Callable[[Trace], list[Score]], pairs: Sequence[MetricScorer], trace: Trace
    ) -> list[Score]:
        try:
            return part(trace)
        except Exception:
            log.exception("scoring of trace %r failed", trace.trace_id[:80])
            return complete_results([], pairs, trace.probability)

    def against_reference(self, trace: Trace) -> list[Score]:
        """What the reference of a canary says; nothing of other traces."""
        if not trace.canary:
            return []

        def part(trace: Trace) -> list[Score]:
            return score_canary(trace, self._ks, self._monotonic)

        return self._run(part, self._of_reference, trace)

    def score_cheap(self, trace: Trace) -> list[Score]:
        """What needs no slow tier."""
        return [score for part, pairs in self._parts for score in self._run(part, pairs, trace)]

    def score(self, trace: Trace, timestamp: float | None = None) -> CheapScores:
        """`timestamp` (Unix seconds) replaces the trace's own where its clock was wrong."""
        if trace.canary:
            return self._canary(trace, timestamp)
        results = self.score_cheap(trace)
        if not self.tiers:
            return CheapScores(summarise_trace(trace, results, timestamp))
        assert self._sampler is not None
        cheap = _cheap(results)
        at = trace.timestamp.timestamp() if timestamp is None else timestamp
        # before the draws: what a tier finds must not choose its stratum
        stratum = self._strata.classify(trace, results, at) if self._strata else REST_STRATUM
        found = CheapScores(summarise_trace(trace, results, timestamp), cheap=cheap)
        for tier, promised in self.tiers.items():
            draw = self._sampler.draw(trace, tier, stratum.ratio)
            name = drawn_stratum(stratum.name, draw.probability / trace.probability)
            found.strata[tier] = name
            if draw.taken:
                found.drawn[tier] = draw.probability
                found.trace.frame += [(*pair, name, cheap.get(pair[0])) for pair in promised]
            else:
                found.trace.results += complete_results(
                    [Score(*pair, ScoreState.SAMPLED_OUT) for pair in promised],
                    promised,
                    draw.probability,
                    stratum=name,
                    cheap=cheap,
                )
        return found

    def _canary(self, trace: Trace, timestamp: float | None) -> CheapScores:
        found = CheapScores(summarise_trace(trace, self.against_reference(trace), timestamp))
        if not self._judged:
            return found
        assert self._sampler is not None
        state, reason = ScoreState.UNSCORED, "budget"
        if trace.reference is None:  # the service's own record of one: the sender's is judged
            state, reason = ScoreState.NOT_APPLICABLE, "no_reference"
        elif self._sampler.admits_canary("judge"):
            found.drawn["judge"], found.strata["judge"] = trace.probability, ""
            return found
        missing = [Score(*pair, state, reason=reason) for pair in self._judged]
        found.trace.results += complete_results(missing, self._judged, trace.probability)
        return found

    def pending_pairs(self, found: CheapScores, tier: Tier) -> tuple[MetricScorer, ...]:
        """What `tier` owes a trace that it has drawn."""
        return self._judged if found.trace.canary else self.tiers[tier]

    def shed(self, found: CheapScores, tier: Tier) -> None:
        """What `tier` has drawn will not be scored: its results are known now."""
        pairs = self.pending_pairs(found, tier)
        probability = found.drawn.pop(tier)
        gone = set(pairs)
        found.trace.frame = [row for row in found.trace.frame if (row[0], row[1]) not in gone]
        found.trace.results += complete_results(
            [Score(*pair, ScoreState.SHED) for pair in pairs],
            pairs,
            probability,
            stratum=found.strata[tier],
            cheap=found.cheap,
        )


def _cheap(results: Sequence[Score]) -> dict[str, float]:
    """The built-in scores by metric."""
    return {
        score.metric: score.value
        for score in results
        if score.scorer == "builtin"
        and score.state is ScoreState.SCORED
        and score.value is not None
    }


def summarise_trace(
    trace: Trace, results: list[Score], timestamp: float | None = None
) -> ScoredTrace:
    """The numbers of a trace that the aggregate half needs, with `results`."""
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
    """One result for each of `pairs`, in their order, whatever a scorer has returned: what it
    left out is `unscored` with the reason `missing`. All get the inclusion probability that held,
    multiplied by what the score says of a share of its own, the stratum that the trace was drawn
    from, and the built-in score of the same metric."""
    found = {(score.metric, score.scorer): score for score in scores}
    results = []
    for pair in pairs:
        score = found.get(pair)
        if score is None:
            score = Score(*pair, ScoreState.UNSCORED, reason=missing)
        score.probability = probability * score.probability
        score.stratum = stratum
        if cheap:
            score.cheap = cheap.get(score.metric)
        results.append(score)
    return results
