"""Make the incident of an alert that is announced, with those that are folded under it."""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.alerts.alert import Alert, clean_text
from ragmeter.parts.views import Incident, IncidentKind

_MAX_SUMMARY = 140  # characters

# The question and the kind of fault by metric; of others a rule says what is wrong.
_QUESTIONS: dict[str, tuple[str, IncidentKind]] = {
    "error": ("works", "errors"),
    "timeout": ("works", "timeouts"),
    "empty_answer": ("works", "empty"),
    "latency": ("fast", "slow"),
    "answered": ("answered", "refusals"),
    "grounding": ("grounded", "ungrounded"),
    "faithfulness": ("grounded", "ungrounded"),
    "relevance": ("retrieved", "wrong_passages"),
    "cost_usd": ("cost", "cost"),
    "traces": ("", "no_traffic"),
}


def incident_of(alert: Alert, folded: Sequence[Alert] = ()) -> Incident:
    """Return the incident of an announced alert, with those folded under it as evidence."""
    question, kind = _QUESTIONS.get(alert.metric, ("", "rule"))
    if alert.unscored is not None:
        question, kind = "", "measuring"
    over = alert.state == "resolved"
    drift = alert.drift or {}
    told = alert.since if alert.fired_at is None else alert.fired_at
    title = alert.summary.removeprefix("Resolved: ").partition(" (")[0]
    if not title.startswith(f"{alert.service}: "):
        title = f"{alert.service}: {title or alert.rule}"
    return Incident(
        id=alert.id,
        service=alert.service,
        question=question,
        kind=kind,
        severity="page" if alert.severity == "critical" else "warning",
        state="over" if over else "no traffic" if alert.no_data else "open",
        since=alert.since,
        since_lower=drift.get("since_earliest", alert.since),
        since_upper=drift.get("since_latest", alert.since),
        opened_at=told,
        updated_at=alert.updated_at,
        ended_at=alert.resolved_at,
        usual=alert.baseline,
        level=alert.value,
        lower=alert.lower,
        upper=alert.upper,
        segment=alert.segment or alert.top_segment,
        worst=tuple(alert.worst),
        signals=(alert, *folded),
        title=clean_text(f"{title} (over)" if over else title, _MAX_SUMMARY),
        summary=clean_text(alert.summary, _MAX_SUMMARY),
        detail=tuple(filter(None, (alert.top_segment_words, alert.reason))),
        runbook=alert.runbook,
    )
