"""Objectives on the boards."""

from __future__ import annotations

from ragmeter.parts.objectives.burn_rates import BURN_RATE_ALERTS, max_error_ratio
from ragmeter.parts.objectives.settings import ObjectivesSettings

from deploy.dashboards.panels import Panel, lines
from deploy.dashboards.promql import of_service

__all__ = ["overview"]


def overview() -> list[Panel]:
    """The bad share of each objective of a service."""
    bad = f"sum by (slo) (increase({of_service('rag_slo_bad_events_total')}[1h]))"
    events = f"sum by (slo) (increase({of_service('rag_slo_events_total')}[1h]))"
    return [
        lines(
            "Error budgets: bad share of the last hour",
            f"Events that broke an objective. {_budgets()}",
            {"{{slo}}": f"{bad} / {events}"},
            unit="percentunit",
            size=(8, 7),
            alerts=tuple(alert.name for alert in BURN_RATE_ALERTS),
        )
    ]


def _budgets() -> str:
    """What the share is held against, from the same objectives as the rules."""
    fast = BURN_RATE_ALERTS[0]
    told = [
        f"{slo.name} ({slo.objective:g}) at {max_error_ratio(fast.factor, slo.objective):.3g}"
        for slo in ObjectivesSettings().slos
    ]
    return f"With the default objectives the fast page begins at: {', '.join(told)}."
