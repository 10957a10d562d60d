"""An incident to show and to send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ragmeter.parts.views import Change, Incident

from tests.exporters.alerts import make

RUNBOOK = "https://wiki.example/errors.md"


def opened(**changes: Any) -> Incident:
    """A fifth of the requests of service `bot` fails since event time 880; reported at 1000."""
    base = Incident(
        id="0123456789abcdef",
        service="bot",
        question="works",
        kind="errors",
        severity="page",
        state="open",
        since=880.0,
        since_lower=820.0,
        since_upper=940.0,
        opened_at=1000.0,
        updated_at=1060.0,
        usual=0.004,
        level=0.2,
        lower=0.15,
        upper=0.26,
        better="lower",
        harm=0.196,
        worst=("trace-1", "trace-2"),
        worst_questions=(("How do I reset it?", 10), ("Where is it?", 2)),
        signals=(make(),),
        title="bot: 20 % of requests fail",
        summary="Errors 20 % (15 to 26), usual 0.4 %, since 00:14 UTC. All requests alike.",
        detail=("Most often: upstream unavailable.", "It ends when errors are below 1 %."),
        advice="See what the provider says.",
        runbook=RUNBOOK,
    )
    return replace(base, **changes)


def refused(**changes: Any) -> Incident:
    """A new prompt refuses a third of the questions of one tenant: a warning."""
    fields: dict[str, Any] = {
        "id": "fedcba9876543210",
        "question": "answered",
        "kind": "refusals",
        "severity": "warning",
        "usual": 0.95,
        "level": 0.63,
        "lower": 0.55,
        "upper": 0.71,
        "better": "higher",
        "segment": "tenant=globex",
        "change": Change(870.0, "prompt_version", "v13"),
        "title": "bot: prompt v13 refuses 37 % of questions",
        "summary": "Answered 95 % -> 63 % (55 to 71), since 00:14 UTC, with prompt v13.",
        "worst": ("trace-3",),
        "worst_questions": (),
    }
    return opened(**{**fields, **changes})


def over(**changes: Any) -> Incident:
    """The errors are over since event time 4000."""
    fields: dict[str, Any] = {
        "state": "over",
        "ended_at": 4000.0,
        "updated_at": 4000.0,
        "level": 0.003,
        "title": "bot: requests work again",
        "summary": "Errors 0.3 %, as usual; it lasted 52 min.",
    }
    return opened(**{**fields, **changes})
