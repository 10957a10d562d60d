"""The registry of metrics by name: built-in families merged, custom metrics added.

Every metric gives exactly one `Score` for every trace, whatever the trace looks like: a value, or
a state with its reason. `seen == sum(states)` rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.metrics import (
    abstention,
    builtin,
    citations,
    cited_statements,
    claims_and_nuggets,
    judge_agreement,
    operational,
    ranking,
)
from ragmeter.metrics import labelled as labelled_answers
from ragmeter.metrics import labelled as labelled_passages
from ragmeter.metrics.canary import specs as canary
from ragmeter.metrics.canary.scores import add_canary_scorers
from ragmeter.metrics.custom import CUSTOM_METRICS, CustomMetric


def _merge_families(*families: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
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
            formula=_append_variant(known.formula, by, spec.formula),
            needs=_append_variant(known.needs, by, spec.needs),
            source=_append_variant(known.source, by, spec.source),
        )
    return found


def _append_variant(known: str, by: str, text: str) -> str:
    return known if text == known else f"{known}; {by}: {text}"


_BUILTIN_METRICS = _merge_families(
    *(
        operational.SPECS,
        abstention.SPECS,
        citations.SPECS,
        builtin.BUILTIN_SPECS,
        cited_statements.CITED_SPECS,
    ),
    *(
        ranking.RANKING_SPECS,
        claims_and_nuggets.NUGGET_SPECS,
        claims_and_nuggets.CLAIM_SPECS,
        ranking.CONTEXT_SPECS,
        judge_agreement.SPECS,
        canary.SPECS,
    ),
    *(labelled_passages.LABELLED_PASSAGE_SPECS, labelled_answers.LABELLED_ANSWER_SPECS),
)
METRICS: dict[str, MetricSpec] = {
    name: add_canary_scorers(spec) for name, spec in _BUILTIN_METRICS.items()
}


def install_metric(metric: CustomMetric) -> None:
    """Another metric of a user, from now on. ValueError where its name is taken."""
    if metric in CUSTOM_METRICS:
        return
    name = metric.spec.name
    if name in METRICS:
        raise ValueError(f"there is a metric {name!r} already")
    METRICS[name] = metric.spec
    CUSTOM_METRICS.append(metric)
