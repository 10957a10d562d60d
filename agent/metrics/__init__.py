"""What is measured on a trace: the registry of metrics and the scorers that need no model.

Every metric gives exactly one `Score` for every trace, whatever the trace looks like: a value, or
a state with its reason. `seen == sum(states)` rests on that.
"""

from __future__ import annotations

from agent.metrics import answered, citations, operational, quality
from agent.metrics.markers import resolve
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["METRICS", "MetricSpec", "score_builtin", "score_cheap"]

METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for family in (operational, answered, citations, quality)
    for spec in family.SPECS
}


def score_cheap(trace: Trace) -> list[Score]:
    """Operation, abstention and citation presence: every trace, some tens of microseconds."""
    verdict = answered.verdict(trace)
    return [
        *operational.score(trace),
        answered.score(trace, verdict),
        *citations.score(trace, verdict, resolve(trace)),
    ]


def score_builtin(trace: Trace) -> list[Score]:
    """Relevance, grounding and citation support by lexical means, scorer `builtin`."""
    return quality.score(trace, answered.verdict(trace), resolve(trace))
