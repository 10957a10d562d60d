"""Turn scored traces into good and bad events of the configured objectives.

Their counters are exported. The burn-rate rules for Prometheus read them
(`ragmeter.parts.objectives.burn_rates`); the agent itself has no error budgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.config.loader import ConfigError
from ragmeter.core.arithmetic import weight_units
from ragmeter.core.feedback import HUMAN, PEOPLE
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import BUILTIN_SCORER, ScoredTrace, ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.objectives.settings import SloSettings


class ObjectiveEvent(NamedTuple):
    """One event of the objective `slo`; `weight` in whole units of `ragmeter.core.arithmetic`."""

    slo: str
    weight: int
    bad: bool


def objective_events(scored: ScoredTrace, slos: Sequence[SloSettings]) -> list[ObjectiveEvent]:
    """Return the events of a scored trace.

    A `partial` one has only those of its results: its status and times were counted before.
    """
    events: list[ObjectiveEvent] = []
    upstream_weight = 0
    for slo in slos:
        if slo.metric is not None:
            events += _result_events(scored, slo)
            continue
        if scored.partial:
            continue
        if slo.bad == "slow":
            total = scored.timings.get("total")
            if total is None:
                continue
            bad = total > (slo.seconds or math.inf)
        else:
            bad = scored.status != "ok" if slo.bad == "failed" else scored.status == slo.bad
        upstream_weight = upstream_weight or weight_units(scored.probability)
        events.append(ObjectiveEvent(slo.name, upstream_weight, bad))
    return events


def _result_events(scored: ScoredTrace, slo: SloSettings) -> list[ObjectiveEvent]:
    scorer = slo.scorer or BUILTIN_SCORER
    threshold = slo.threshold
    if threshold is None:
        raise ValueError(f"the objective {slo.name} counts results and has no threshold")
    return [
        ObjectiveEvent(
            slo.name,
            weight_units(score.probability),  # its own: all causes of sampling multiplied
            score.value < threshold if slo.bad == "low" else score.value > threshold,
        )
        for score in scored.results
        if score.metric == slo.metric
        and score.scorer == scorer
        and score.state is ScoreState.SCORED
        and score.value is not None
    ]


def check_objectives(slos: Sequence[SloSettings]) -> None:
    """Check what the settings alone cannot know: the metrics and scorers of objectives.

    Raises:
        ConfigError: An objective names an unknown metric or scorer, or labels of people.
    """
    for slo in slos:
        if slo.metric is not None:
            _check_series(slo, slo.metric, slo.scorer or BUILTIN_SCORER)


def _check_series(slo: SloSettings, metric: str, scorer: str) -> None:
    spec = find_spec(metric_specs(), metric)
    if spec is None:
        raise ConfigError(f"slos: {slo.name}: metric {metric!r} is not known")
    if scorer not in spec.scorers:
        allowed = ", ".join(spec.scorers)
        raise ConfigError(f"slos: {slo.name}: scorer {scorer!r} is not known; allowed: {allowed}")
    if scorer in (HUMAN, PEOPLE):
        raise ConfigError(
            f"slos: {slo.name}: labels of people come late and are corrected, and a"
            " counter cannot take an event back; watch them by a rule (docs/alerts.md)"
        )
