"""Where the lines of the panels lie: at the thresholds of the agent's own default rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragmeter.alerts.rule_sets import runbook_pages
from ragmeter.alerts.rules import AlertRule, load_rules
from ragmeter_exporters.rules.health_rules import HEALTH_RULES

__all__ = ["Line", "Lines", "latency", "pages"]

COLOURS = {"warning": "orange", "critical": "red"}
_RULES = load_rules()


@dataclass(frozen=True, slots=True)
class Line:
    """A threshold: an alert of this severity fires beyond it."""

    value: float
    severity: str
    above: bool

    @property
    def colour(self) -> str:
        return COLOURS[self.severity]


@dataclass(frozen=True, slots=True)
class Lines:
    """The thresholds of one quantity, and what to say about them."""

    lines: tuple[Line, ...] = ()
    alerts: tuple[str, ...] = ()
    story: str = ""

    def steps(self) -> list[tuple[float | None, str]]:
        """As Grafana has them: from which value on which colour; none where all is well."""
        below = sorted((one for one in self.lines if not one.above), key=lambda one: one.value)
        above = sorted((one for one in self.lines if one.above), key=lambda one: one.value)
        # what lies below a lower threshold has its colour; from it on there is none
        found: list[tuple[float | None, str]] = [(None, below[0].colour if below else "")]
        found += [(one.value, after.colour) for one, after in itertools.pairwise(below)]
        if below:
            found.append((below[-1].value, ""))
        return found + [(one.value, one.colour) for one in above]


def latency(stage: str, quantile: float) -> Lines:
    return _lines(
        rule
        for rule in _RULES
        if rule.latency is not None
        and (rule.latency.stage, rule.latency.quantile) == (stage, quantile)
    )


def _lines(rules: Iterable[AlertRule]) -> Lines:
    found = list(rules)
    return Lines(
        tuple(
            Line(rule.threshold, rule.severity, rule.op.startswith(">"))
            for rule in found
            if rule.relative_to is None  # where that lies depends on the service
        ),
        tuple(rule.name for rule in found),
        " ".join(_story(rule) for rule in found),
    )


def _story(rule: AlertRule) -> str:
    """What the dashed line means, in the words of the rule."""
    sure = "" if rule.statistic == "value" else " (95 % sure)"
    side = "above" if rule.op.startswith(">") else "below"
    times = f" times that over {rule.relative_to}" if rule.relative_to else ""
    by = "" if rule.latency is not None else f" by {rule.scorer}"
    return (
        f"{rule.name} fires when the value over {rule.window}{by} is {side}"
        f" {rule.threshold:g}{times}{sure}."
    )


def pages(alerts: Sequence[str]) -> list[str]:
    """The runbooks of alerts, each once. KeyError for an alert that there is not."""
    known = (
        {rule.name for rule in _RULES} | {rule.name for rule in HEALTH_RULES} | set(runbook_pages())
    )
    assert set(alerts) <= known, set(alerts) - known
    return list(dict.fromkeys(runbook_pages()[name] for name in alerts))
