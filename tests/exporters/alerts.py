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


def drifted(**changes: Any) -> Alert:
    """Grounding went from .8 to .6 at event time 700; told at 1000."""
    found = {
        "kind": "mean", "baseline": 0.8, "baseline_version": 1, "baseline_hours": 6.0,
        "provisional": True, "statistic": 51234.0, "since_earliest": 640.0, "since_latest": 760.0,
        "span_seconds": 300.0, "edge": None, "segment": "model=<b>", "segment_words": "",
        "fingerprint": "ab12cd34ef56", "cause": "",
    }  # fmt: skip
    return make(
        rule="RagDrift", severity="warning", metric="grounding", value=0.6, lower=0.55, upper=0.65,
        threshold=43200.0, statistic="drift", op=">=", since=700.0, labels={"kind": "mean"},
        drift={**found, **changes.pop("drift", {})}, **changes,
    )  # fmt: skip
