"""What is measured on a trace: the registry of metrics and the scorers that need no model.

Every metric gives exactly one `Score` for every trace, whatever the trace looks like: a value, or
a state with its reason. `seen == sum(states)` rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.metrics import (
    answered,
    citations,
    cited,
    judges,
    nuggets,
    operational,
    quality,
    ranking,
)
from agent.metrics.markers import Cited, resolve
from agent.metrics.missing import explained, known
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["METRICS", "MetricSpec", "score_builtin", "score_cheap"]

METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for family in (operational, answered, citations, quality, cited, ranking, nuggets, judges)
    for spec in family.SPECS
}


_last: tuple[Trace, Trace, float | None, Cited] | None = None


def _read(trace: Trace) -> tuple[Trace, float | None, Cited]:
    """What is known of a trace, the verdict on its answer and its citations; both tiers need
    them, one right after the other.

    The last trace is remembered in one tuple, so that threads at worst read it anew.
    """
    global _last
    last = _last
    if last is not None and last[0] is trace:
        return last[1:]
    seen = known(trace)
    # ids tell a citation from other brackets, also where the passages' texts are not whole
    bare = seen if seen is trace else seen.model_copy(update={"passages": trace.passages})
    read = seen, answered.verdict(seen), resolve(bare)
    _last = (trace, *read)
    return read


def score_cheap(trace: Trace) -> list[Score]:
    """Operation, abstention and citation presence: every trace, some tens of microseconds."""
    seen, verdict, cited = _read(trace)
    scores = [
        *operational.score(trace),
        answered.score(seen, verdict),
        *citations.score(seen, verdict, cited),
    ]
    return explained(trace, scores)


def score_builtin(trace: Trace) -> list[Score]:
    """Relevance, grounding and citation support by lexical means, scorer `builtin`."""
    return explained(trace, quality.score(*_read(trace)))
