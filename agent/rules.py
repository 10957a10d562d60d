"""The alert rules that the settings ask for: the defaults with the user's file over them."""

from __future__ import annotations

import logging

from agent.alerts import Rule, RuleError, load_rules
from agent.alerts.runbooks import with_runbooks
from agent.config import Settings
from agent.metrics import METRICS

__all__ = ["rules_of"]

log = logging.getLogger("ragmeter.rules")


def rules_of(settings: Settings) -> list[Rule]:
    """Raises `RuleError` for a mistake in a rule.

    A default rule on a window that is not configured is left out, and said so; a user's is a
    mistake. Rules without a runbook get ours, where `alerts.runbook_url` says where they are.
    """
    alerts = settings.alerts
    rules = load_rules(
        alerts.rules, profile=alerts.profile, metrics=METRICS, segments=settings.segments
    )
    defaults = {rule.name: rule for rule in load_rules(profile=alerts.profile)}
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
