"""Turn scored traces into good and bad events of the configured objectives.

`events` is the only place that decides it. What it gives goes both to the counters that Prometheus
reads and to the error budgets that the agent's own rules read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.alerts.error_budgets import Objective, ObjectiveEvidence
from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import SloSettings
from ragmeter.core.arithmetic import weight_units
from ragmeter.core.feedback import HUMAN
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import BUILTIN_SCORER, REFERENCE_SCORER, ScoredTrace, ScoreState
from ragmeter.metrics.registry import METRICS

JUDGED_LAG = 120
"""Seconds by which windows of judged objectives end early. Judges take longer over bad answers:
without it the last minutes look too good (0.014 of a rate where they take four times as long)."""


class ObjectiveEvent(NamedTuple):
    """One event of the objective `slo`; `weight` in whole units of `ragmeter.core.arithmetic`."""

    slo: str
    weight: int
    bad: bool


def objective_events(scored: ScoredTrace, slos: Sequence[SloSettings]) -> list[ObjectiveEvent]:
    """The events that a scored trace brings. One that is `partial` brings only those of the
    results that it carries: its status and times were counted when it was applied."""
    found: list[ObjectiveEvent] = []
    upstream = 0
    for slo in slos:
        if slo.metric is not None:
            found += _of_results(scored, slo)
            continue
        if scored.partial:
            continue
        if slo.bad == "slow":
            total = scored.timings.get("total")
            if total is None:  # not timed: says nothing about how fast it was
                continue
            bad = total > (slo.seconds or math.inf)
        else:
            bad = scored.status != "ok" if slo.bad == "failed" else scored.status == slo.bad
        upstream = upstream or weight_units(scored.probability)
        found.append(ObjectiveEvent(slo.name, upstream, bad))
    return found


def _of_results(scored: ScoredTrace, slo: SloSettings) -> list[ObjectiveEvent]:
    """A score is weighted by the inverse of its own probability, all causes multiplied."""
    wanted, threshold = slo.scorer or BUILTIN_SCORER, slo.threshold
    assert threshold is not None  # the settings see to it
    return [
        ObjectiveEvent(
            slo.name,
            weight_units(score.probability),
            score.value < threshold if slo.bad == "low" else score.value > threshold,
        )
        for score in scored.results
        if score.metric == slo.metric
        and score.scorer == wanted
        and score.state is ScoreState.SCORED
        and score.value is not None
    ]


def build_objectives(slos: Sequence[SloSettings]) -> list[Objective]:
    """The same for the error budgets. Raises ConfigError for a metric that does not exist."""
    return [_objective(slo) for slo in slos]


def _objective(slo: SloSettings) -> Objective:
    if slo.metric is not None and slo.threshold is not None:
        spec, scorer = find_spec(METRICS, slo.metric), slo.scorer or BUILTIN_SCORER
        if spec is None:
            raise ConfigError(f"slos: {slo.name}: metric {slo.metric!r} is not known")
        if scorer not in spec.scorers:
            allowed = ", ".join(spec.scorers)
            raise ConfigError(
                f"slos: {slo.name}: scorer {scorer!r} is not known; allowed: {allowed}"
            )
        if scorer == HUMAN:
            raise ConfigError(
                f"slos: {slo.name}: labels of people come late and are corrected, and an error"
                " budget cannot take an event back; watch them by a rule (docs/alerts.md)"
            )
        evidence = ObjectiveEvidence(slo.metric, scorer, slo.threshold, above=slo.bad == "high")
        lag = 0 if scorer in (BUILTIN_SCORER, REFERENCE_SCORER) else JUDGED_LAG
        return Objective(slo.name, slo.objective, lag, (evidence,))
    if slo.bad == "slow":
        return Objective(
            slo.name,
            slo.objective,
            0,
            (ObjectiveEvidence("latency", "total", slo.seconds or math.inf),),
        )
    metrics = ("error", "timeout") if slo.bad == "failed" else (slo.bad,)
    return Objective(
        slo.name,
        slo.objective,
        0,
        tuple(ObjectiveEvidence(name, BUILTIN_SCORER, 0.5) for name in metrics),
    )
