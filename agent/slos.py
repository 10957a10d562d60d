"""Objectives from the settings: which events count for them, and which of these are bad.

`events` is the only place that decides it. What it gives goes both to the counters that Prometheus
reads and to the error budgets that the agent's own rules read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agent.alerts.burn import Evidence, Objective
from agent.config import ConfigError, Slo
from agent.feedback.labels import HUMAN
from agent.metrics import METRICS
from agent.metrics.names import spec_of
from agent.metrics.results import BUILTIN, REFERENCE
from agent.trace import ScoredTrace, State
from agent.windows.exact import weight

__all__ = ["JUDGED_LAG", "Event", "events", "objectives"]

JUDGED_LAG = 120
"""Seconds by which windows of judged objectives end early. Judges take longer over bad answers:
without it the last minutes look too good (0.014 of a rate where they take four times as long)."""


class Event(NamedTuple):
    """One event of the objective `slo`; `weight` in whole units of `agent.windows.exact`."""

    slo: str
    weight: int
    bad: bool


def events(scored: ScoredTrace, slos: Sequence[Slo]) -> list[Event]:
    """The events that a scored trace brings. One that is `partial` brings only those of the
    results that it carries: its status and times were counted when it was applied."""
    found: list[Event] = []
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
        upstream = upstream or weight(scored.probability)
        found.append(Event(slo.name, upstream, bad))
    return found


def _of_results(scored: ScoredTrace, slo: Slo) -> list[Event]:
    """A score is weighted by the inverse of its own probability, all causes multiplied."""
    wanted, threshold = slo.scorer or BUILTIN, slo.threshold
    assert threshold is not None  # the settings see to it
    return [
        Event(
            slo.name,
            weight(score.probability),
            score.value < threshold if slo.bad == "low" else score.value > threshold,
        )
        for score in scored.results
        if score.metric == slo.metric
        and score.scorer == wanted
        and score.state is State.SCORED
        and score.value is not None
    ]


def objectives(slos: Sequence[Slo]) -> list[Objective]:
    """The same for the error budgets. Raises ConfigError for a metric that does not exist."""
    return [_objective(slo) for slo in slos]


def _objective(slo: Slo) -> Objective:
    if slo.metric is not None and slo.threshold is not None:
        spec, scorer = spec_of(METRICS, slo.metric), slo.scorer or BUILTIN
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
        evidence = Evidence(slo.metric, scorer, slo.threshold, above=slo.bad == "high")
        lag = 0 if scorer in (BUILTIN, REFERENCE) else JUDGED_LAG
        return Objective(slo.name, slo.objective, lag, (evidence,))
    if slo.bad == "slow":
        return Objective(
            slo.name, slo.objective, 0, (Evidence("latency", "total", slo.seconds or math.inf),)
        )
    metrics = ("error", "timeout") if slo.bad == "failed" else (slo.bad,)
    return Objective(
        slo.name, slo.objective, 0, tuple(Evidence(name, BUILTIN, 0.5) for name in metrics)
    )
