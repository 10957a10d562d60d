"""An alert to send."""

from __future__ import annotations

from typing import Any

from ragmeter.alerts.alert import Alert, alert_id


def make(**changes: Any) -> Alert:
    """A critical error-ratio alert of service `bot`, fired at event time 1000."""
    fields: dict[str, Any] = {
        "rule": "ErrorsHigh",
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
    """Grounding went from .8 to .6 at event time 700; reported at 1000."""
    found = {"kind": "mean", "statistic": 5.1, "since_earliest": 640.0, "since_latest": 760.0}
    fields: dict[str, Any] = {
        "rule": "RagDrift",
        "severity": "warning",
        "metric": "grounding",
        "value": 0.6,
        "lower": 0.55,
        "upper": 0.65,
        "threshold": 0.0,
        "statistic": "drift",
        "op": ">=",
        "since": 700.0,
        "question": "grounded",
        "harm": 0.4,
        "baseline": 0.8,
        "top_segment": "model=<b>",
        "top_segment_words": "model=<b> changed more than others",
        "fingerprint": "ab12cd34ef56",
        "drift": {**found, **changes.pop("drift", {})},
    }
    return make(**{**fields, **changes})


def unscored(**changes: Any) -> Alert:
    """A third of the judge's grounding fails."""
    fields: dict[str, Any] = {
        "rule": "RagUnscoredHigh",
        "metric": "grounding",
        "scorer": "judge",
        "window": "1h",
        "value": 0.33,
        "lower": 0.27,
        "upper": 0.4,
        "threshold": 0.25,
        "baseline": 0.01,
        "fingerprint": "ab12cd34ef56",
        "unscored": {"judge_timeout": 60, "unparsable": 3},
    }
    return make(**{**fields, **changes})


def slow(**changes: Any) -> Alert:
    """The 95th percentile of the total latency."""
    fields: dict[str, Any] = {
        "rule": "LatencyHigh",
        "metric": "latency",
        "scorer": "",
        "value": 41.0,
        "lower": 35.0,
        "upper": 52.0,
        "threshold": 30.0,
        "baseline": 2.31,
        "labels": {"stage": "total", "quantile": "0.95"},
    }
    return make(**{**fields, **changes})


def absent(**changes: Any) -> Alert:
    """No trace for an hour, of a service that has 40 an hour."""
    fields: dict[str, Any] = {
        "rule": "RagTracesAbsent",
        "severity": "warning",
        "metric": "traces",
        "scorer": "",
        "window": "1h",
        "value": 0.0,
        "lower": None,
        "upper": None,
        "threshold": 0.0,
        "op": "<=",
        "statistic": "value",
        "samples": 0,
        "effective_samples": 0.0,
        "worst": [],
        "baseline": 40.0,
    }
    return make(**{**fields, **changes})
