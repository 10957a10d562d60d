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
    claims,
    context,
    judges,
    nuggets,
    operational,
    quality,
    ranking,
)
from agent.metrics.canary import specs as canary
from agent.metrics.canary.judged import with_canaries
from agent.metrics.labelled import answers as labelled_answers
from agent.metrics.labelled import passages as labelled_passages
from agent.metrics.markers import Cited, resolve
from agent.metrics.missing import explained, known
from agent.metrics.own import INSTALLED, OWN, OwnMetric, score_own
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["METRICS", "MetricSpec", "install", "score_builtin", "score_cheap"]


def _joined(*families: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    """By name. What several families measure is one quantity with all their scorers: it is named
    and bounded as the first says, and how the others come to it is said beside that."""
    found: dict[str, MetricSpec] = {}
    for spec in (spec for family in families for spec in family):
        known = found.get(spec.name)
        if known is None:
            found[spec.name] = spec
            continue
        assert (spec.kind, spec.low, spec.high, spec.good, spec.unit, spec.labels) == (
            *(known.kind, known.low, known.high, known.good, known.unit, known.labels),
        ), spec.name
        by = f"by {', '.join(spec.scorers)}"
        found[spec.name] = replace(
            known,
            scorers=(*known.scorers, *spec.scorers),
            formula=_beside(known.formula, by, spec.formula),
            needs=_beside(known.needs, by, spec.needs),
            source=_beside(known.source, by, spec.source),
        )
    return found


def _beside(known: str, by: str, text: str) -> str:
    return known if text == known else f"{known}; {by}: {text}"


_MEASURED = _joined(
    *(operational.SPECS, answered.SPECS, citations.SPECS, quality.SPECS, cited.SPECS),
    *(ranking.SPECS, nuggets.SPECS, claims.SPECS, context.SPECS, judges.SPECS, canary.SPECS),
    *(labelled_passages.SPECS, labelled_answers.SPECS),
)
METRICS: dict[str, MetricSpec] = {name: with_canaries(spec) for name, spec in _MEASURED.items()}


def install(metric: OwnMetric) -> None:
    """Another metric of a user, from now on. ValueError where its name is taken."""
    if metric in INSTALLED:
        return
    name = metric.spec.name
    if name in METRICS:
        raise ValueError(f"there is a metric {name!r} already")
    METRICS[name] = metric.spec
    INSTALLED.append(metric)


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
    """Operation, abstention and citation presence: every trace, some tens of microseconds. And
    what users have added."""
    seen, verdict, cited = _read(trace)
    scores = [
        *operational.score(trace),
        answered.score(seen, verdict),
        *citations.score(seen, verdict, cited),
        *score_own(seen, OWN),
    ]
    return explained(trace, scores)


def score_builtin(trace: Trace) -> list[Score]:
    """Relevance, grounding and citation support by lexical means, scorer `builtin`."""
    return explained(trace, quality.score(*_read(trace)))
