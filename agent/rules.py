"""The alert rules that the settings ask for: the defaults with the user's file over them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agent.alerts import Rule, RuleError, load_rules
from agent.alerts.runbooks import with_runbooks
from agent.config import Settings
from agent.metrics import METRICS
from agent.metrics.own import INSTALLED, OwnMetric

__all__ = ["default_rules", "in_words", "rules_of"]

log = logging.getLogger("ragmeter.rules")

OURS = "Rag"
"""What the names of our rules begin with."""


def rules_of(settings: Settings) -> list[Rule]:
    """Raises `RuleError` for a mistake in a rule.

    Users' own metrics may bring rules along; the user's file lies over those, too.

    A default rule on a window that is not configured is left out, and said so; a user's is a
    mistake. Rules without a runbook get ours, where `alerts.runbook_url` says where they are.
    """
    alerts = settings.alerts
    rules = load_rules(
        alerts.rules,
        profile=alerts.profile,
        brought=[_brought(INSTALLED)],
        metrics=METRICS,
        segments=settings.segments,
    )
    defaults = {rule.name: rule for rule in default_rules(alerts.profile)}
    kept = []
    for rule in rules:
        if rule.burn is not None or rule.window in settings.windows:
            kept.append(rule)
        elif defaults.get(rule.name) == rule:
            log.warning("rule %s is off: there is no window %s", rule.name, rule.window)
        else:
            allowed = ", ".join(settings.windows)
            raise RuleError(f"rule {rule.name!r}: window {rule.window!r} is not one of {allowed}")
    return with_runbooks(kept, alerts.runbook_url) if alerts.runbook_url else kept


def default_rules(profile: str = "balanced") -> list[Rule]:
    """The rules that hold without a file of the user's. Raises `RuleError`."""
    return load_rules(profile=profile, brought=[_brought(INSTALLED)])


def in_words(rule: Rule) -> str:
    """A rule about a metric in one line."""
    of = "" if rule.statistic == "value" else f"{rule.statistic} end "
    return (
        f"{rule.name}: {rule.severity} if {of}{rule.op} {rule.threshold:g} over {rule.window}"
        f" ({rule.scorer})"
    )


def _brought(metrics: Iterable[OwnMetric]) -> dict[str, object]:
    """The rules that users' own metrics bring along, each about its own metric, as a document."""
    entries: list[object] = []
    for metric in metrics:
        about = {"metric": metric.spec.name, "scorer": metric.scorer}
        for rule in metric.rules:
            other = {key: rule[key] for key in about if rule.get(key, about[key]) != about[key]}
            if other:
                raise RuleError(f"metric {metric.spec.name!r} brings a rule about another: {other}")
            if str(rule.get("name")).startswith(OURS):
                raise RuleError(
                    f"metric {metric.spec.name!r} brings rule {rule['name']!r}: names that begin"
                    f" with {OURS} are those of ragmeter"
                )
            entries.append({**rule, **about})
    return {"rules": entries}
