"""Alerts: rules, and the state machine that turns windows into pending, firing and resolved."""

from agent.alerts.alert import Alert, AlertState, Severity, alert_id
from agent.alerts.engine import AlertEngine
from agent.alerts.rules import PROFILES, Profile, Rule, RuleError, load_rules, parse_rules

__all__ = [
    "PROFILES",
    "Alert",
    "AlertEngine",
    "AlertState",
    "Profile",
    "Rule",
    "RuleError",
    "Severity",
    "alert_id",
    "load_rules",
    "parse_rules",
]
