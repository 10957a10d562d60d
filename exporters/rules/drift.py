"""The alarms of the agent's drift detectors."""

from __future__ import annotations

from agent.alerts.drift import DRIFT, JUDGE_CHANGED
from agent.alerts.runbooks import BASE, link
from exporters.rules.promql import KEEP, TARGET, Tree, alert, held, selector

__all__ = ["drift_rules"]


def drift_rules(base: str = BASE) -> list[Tree]:
    """The agent scales each statistic so that 1 is its threshold, and holds back an alarm that
    another one explains: it must say itself that one fires."""
    found = []
    for name, kind, what in (
        (DRIFT, 'kind!="judge"', "has left its baseline"),
        (JUDGE_CHANGED, 'kind="judge"', "differs from the cheap score by more than it did"),
    ):
        statistic = held(selector("ragmeter_drift_statistic", {}, kind))
        says = held(selector("ragmeter_alerts_firing", {"alertname": name}))
        series = "{{ $labels.metric }}{{ with $labels.scorer }} by {{ . }}{{ end }}"
        told = {
            "summary": f"{{{{ $labels.service }}}}: {series} {what} ({{{{ $labels.kind }}}}), "
            'statistic {{ $value | printf "%.3g" }} times its threshold',
            "description": "The agent's status page says since when, from what to what, and in "
            "which segment.",
            "runbook_url": link(name, base),
        }
        found.append(
            alert(
                name,
                f"{statistic} >= 1 and on ({TARGET}) {says} > 0",
                for_=0,  # a detector that alarms has waited long enough
                keep=KEEP,
                labels={"severity": "warning"},
                annotations=told,
            )
        )
    return found
