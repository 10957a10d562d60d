"""The score half: one `Trace` in, one `ScoredTrace` out. Stateless."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.metrics import METRICS, score_builtin, score_cheap
from agent.trace import Score, ScoredTrace, State, Trace

__all__ = ["Scorer"]

log = logging.getLogger("ragmeter.score")


class Scorer:
    """Scores every metric of the cheap tier and, if wanted, the built-in quality metrics.

    `expected` are the (metric, scorer) pairs that every trace gets a result for, whatever
    happens: a scorer that raises leaves `unscored` with reason `internal_error`.
    """

    def __init__(self, builtin: bool = True) -> None:
        self._parts: list[Callable[[Trace], list[Score]]] = [score_cheap]
        if builtin:
            self._parts.append(score_builtin)
        probe = Trace.model_validate({"trace_id": "-", "service": "-", "timestamp": 0})
        self._pairs = {
            part: [(score.metric, score.scorer) for score in part(probe)] for part in self._parts
        }
        self.expected = [pair for pairs in self._pairs.values() for pair in pairs]
        assert all(metric in METRICS for metric, _ in self.expected)

    def _run(self, part: Callable[[Trace], list[Score]], trace: Trace) -> list[Score]:
        try:
            return part(trace)
        except Exception:
            log.exception("scoring of trace %r failed", trace.trace_id[:80])
            return [
                Score(metric, scorer, State.UNSCORED, reason="internal_error")
                for metric, scorer in self._pairs[part]
            ]

    def score(self, trace: Trace, timestamp: float | None = None) -> ScoredTrace:
        """`timestamp` (Unix seconds) replaces the trace's own where its clock was wrong."""
        results = self._run(self._parts[0], trace)
        for part in self._parts[1:]:
            results += self._run(part, trace)
        tags = dict(trace.tags)
        for name, value in (("model", trace.model), ("prompt_version", trace.prompt_version)):
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
