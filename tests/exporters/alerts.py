"""An alert to send."""

from __future__ import annotations

from typing import Any

from agent.alerts import Alert, alert_id


def make(**changes: Any) -> Alert:
    """A critical error-ratio alert of service `bot`, fired at event time 1000."""
    fields: dict[str, Any] = {
        "rule": "RagErrorsHigh",
        "severity": "critical",
        "state": "firing",
        "service": "bot",
        "segment": "",
        "metric": "error",
        "scorer": "builtin",
        "window": "5m",
        "value": 0.2,
        "lower": 0.15,
        "upper": 0.26,
        "threshold": 0.05,
        "samples": 240,
        "effective_samples": 231.5,
        "since": 880.0,
        "fired_at": 1000.0,
        "resolved_at": None,
        "updated_at": 1060.0,
        "summary": "bot: too many errors",
        "worst": ["trace-1", "trace-2"],
        "statistic": "lower",
        **changes,
    }
    fields.setdefault("id", alert_id(fields["rule"], fields["service"], fields["segment"]))
    return Alert(**fields)
