"""The score half: one `Trace` in, one `ScoredTrace` out. Stateless."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from agent.metrics import METRICS, score_builtin, score_cheap
from agent.sampling import Sampler
from agent.trace import Score, ScoredTrace, State, Trace

__all__ = ["Scorer", "TierScorer"]

log = logging.getLogger("ragmeter.score")

Pair = tuple[str, str]


class TierScorer(Protocol):
    """A scorer of the `model` or `judge` tier: it sees only the traces its tier has drawn.

    `pairs` are the (metric, scorer) pairs it answers for; `score` returns one result for each.
    """

    @property
    def tier(self) -> Literal["model", "judge"]: ...

    @property
    def pairs(self) -> Sequence[Pair]: ...

    def score(self, trace: Trace) -> list[Score]: ...


class Scorer:
    """Scores every metric of the cheap tier, the built-in quality metrics if wanted, and what
    the `tiers` give for the traces that `sampler` draws.

    `expected` are the (metric, scorer) pairs that every trace gets exactly one result for,
    whatever happens: a part that raises leaves `unscored` with reason `internal_error`.
    """

    def __init__(
        self,
        builtin: bool = True,
        *,
        sampler: Sampler | None = None,
        tiers: Sequence[TierScorer] = (),
    ) -> None:
        if tiers and sampler is None:
            raise ValueError("tiers need a sampler")
        probe = Trace.model_validate({"trace_id": "-", "service": "-", "timestamp": 0})
        parts = [score_cheap, score_builtin] if builtin else [score_cheap]
        self._parts: list[tuple[Callable[[Trace], list[Score]], list[Pair]]] = [
            (part, [(score.metric, score.scorer) for score in part(probe)]) for part in parts
        ]
        self._sampler = sampler
        self._tiers = tiers
        self.expected = [pair for _, pairs in self._parts for pair in pairs]
        self.expected += [pair for tier in tiers for pair in tier.pairs]
        unknown = {metric for metric, _ in self.expected} - METRICS.keys()
        if unknown:
            raise ValueError(f"not in the registry of metrics: {', '.join(sorted(unknown))}")

    @staticmethod
    def _run(
        part: Callable[[Trace], list[Score]], pairs: Sequence[Pair], trace: Trace
    ) -> list[Score]:
        try:
            return part(trace)
        except Exception:
            log.exception("scoring of trace %r failed", trace.trace_id[:80])
            return [
                Score(metric, scorer, State.UNSCORED, reason="internal_error")
                for metric, scorer in pairs
            ]

    def _run_tier(self, tier: TierScorer, trace: Trace) -> list[Score]:
        assert self._sampler is not None
        draw = self._sampler.draw(trace, tier.tier)
        if not draw.taken:
            return [Score(metric, scorer, State.SAMPLED_OUT) for metric, scorer in tier.pairs]
        found = {
            (score.metric, score.scorer): score
            for score in self._run(tier.score, tier.pairs, trace)
        }
        results = []
        for metric, scorer in tier.pairs:  # one for each, whatever a scorer of others returns
            score = found.get((metric, scorer))
            if score is None:
                score = Score(metric, scorer, State.UNSCORED, reason="internal_error")
            score.probability = draw.probability
            results.append(score)
        return results

    def score(self, trace: Trace, timestamp: float | None = None) -> ScoredTrace:
        """`timestamp` (Unix seconds) replaces the trace's own where its clock was wrong."""
        results: list[Score] = []
        for part, pairs in self._parts:
            results += self._run(part, pairs, trace)
        for tier in self._tiers:
            results += self._run_tier(tier, trace)
        tags = dict(trace.tags)
        for name in ("model", "prompt_version"):
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
        )
