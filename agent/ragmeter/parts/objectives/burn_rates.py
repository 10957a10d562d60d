"""Multi-window, multi-burn-rate rules for Prometheus on the objectives of each service.

An alert fires where the ratio of bad events over a long and over a short window exceeds `factor`
times what the objective allows (SRE workbook, "Alerting on SLOs", table 5-8). The long window shows
that it matters, the short one that it still goes on. Two additions: a floor on the number of
errors, and a cap on the threshold. The agent has no such rules; it exports the counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ragmeter.alerts.promql import HALF, RuleTree, alerting_rule, quote
from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link
from ragmeter.core.durations import parse_whole_seconds
from ragmeter.parts.contract import PrometheusAlert
from ragmeter.parts.objectives.settings import SloSettings


class BurnRateAlert(NamedTuple):
    """An alert on the budget of an objective; windows are durations of PromQL."""

    name: str
    severity: Literal["critical", "warning"]
    long: str
    short: str
    factor: float


# Page at 2 % of a 30-day budget in 1 h, page at 5 % in 6 h, ticket at 10 % in 3 d. A factor is
# share of the budget x 30 days / long window, and a short window a twelfth of the long one.
BURN_RATE_ALERTS = (
    BurnRateAlert(
        name="RagErrorBudgetBurnFast", severity="critical", long="1h", short="5m", factor=14.4
    ),
    BurnRateAlert(
        name="RagErrorBudgetBurnSlow", severity="critical", long="6h", short="30m", factor=6
    ),
    BurnRateAlert(
        name="RagErrorBudgetBurnTicket", severity="warning", long="3d", short="6h", factor=1
    ),
)

# Errors in the long window below which nothing fires: at 0.02 traces/s one chance error is 1.4 %
# of an hour's traces, at 99.9 % a burn rate of 14. Without the floor there are 14 false pages a
# month at half the budget, with it none (benchmarks/burn.py of commit 5d72b3a0).
MIN_ERRORS = 10

# Seconds, as of the agent's own pages: an error ratio that stays at a threshold crosses it all the
# time.
KEEP_FIRING = 300

# The highest threshold: 14.4 x 10 % is more than everything, and could never fire.
_MAX_ERROR_RATIO = 0.5

# Of a window of at most so many seconds the age of a counter is looked up to the minute, of longer
# ones to five: that is done anew at each evaluation while an alert fires.
_FINE_SECONDS = 6 * 3600

# The part of a window from which on its name tells the time that there was.
_NEARLY = 0.95

EVENTS = "rag_slo_events_total"
BAD = "rag_slo_bad_events_total"
# Sum of the squared weights of bad events: (sum w)^2 / sum w^2 is their effective number.
BAD_SQUARES = "rag_slo_bad_events_squared_total"

_BY = "sum by (service, slo)"
_RATIO = "service_slo:rag_slo_bad:ratio_rate"
_ERRORS = "service_slo:rag_slo_bad:effective_increase"


def describe_alerts() -> list[PrometheusAlert]:
    """Return the alerts as their runbook describes them."""
    return [
        PrometheusAlert(
            name=alert.name,
            severity=alert.severity,
            condition=(
                f"{_times(alert)} what the budget allows over {alert.long} and over {alert.short}"
            ),
            keep=KEEP_FIRING,
        )
        for alert in BURN_RATE_ALERTS
    ]


def max_error_ratio(factor: float, objective: float) -> float:
    """Return the error ratio that a window must exceed: min(factor x (1 - objective), 0.5)."""
    # rounded, so that 14.4 x (1 - 0.99) is 0.144
    return round(min(factor * (1 - objective), _MAX_ERROR_RATIO), 10)


def burn_rate_rules(slos: Sequence[SloSettings], runbooks: str = RUNBOOK_BASE) -> list[RuleTree]:
    """Build recordings, and the alerts of each objective; `runbooks` is the base URL of runbooks.

    All belong into one group: it is evaluated in order, so that an alert sees the ratios of its
    own moment and not of the one before.
    """
    long = {alert.long for alert in BURN_RATE_ALERTS}
    short = {alert.short for alert in BURN_RATE_ALERTS}
    ratios = [
        {
            "record": f"{_RATIO}{window}",
            "expr": f"{_BY} (rate({BAD}[{window}])) / {_BY} (rate({EVENTS}[{window}]))",
        }
        for window in sorted(long | short, key=parse_whole_seconds)
    ]
    errors = [
        {
            "record": f"{_ERRORS}{window}",
            "expr": f"{_BY} (increase({BAD}[{window}])) ^ 2"
            f" / {_BY} (increase({BAD_SQUARES}[{window}]))",
        }
        for window in sorted(long, key=parse_whole_seconds)
    ]
    alerts = [_alert_rule(alert, slo, runbooks) for alert in BURN_RATE_ALERTS for slo in slos]
    return [*ratios, *errors, *alerts]


def _times(alert: BurnRateAlert) -> str:
    return "more than" if alert.factor == 1 else f"more than {alert.factor:g} times"


def _bad_events(slo: SloSettings) -> str:
    """Return what happened to the bad events of an objective, in words."""
    match slo.bad:
        case "failed":
            return "requests failed"
        case "error":
            return "requests ended in an error"
        case "timeout":
            return "requests timed out"
        case "slow":
            return f"requests took longer than {slo.seconds:g} s"
        case _:
            side = "below" if slo.bad == "low" else "above"
            return f"answers had {slo.metric} {side} {slo.threshold:g}"


def _over(alert: BurnRateAlert) -> str:
    """Return the template of the time that a ratio is about: its window, or all that there was.

    The counters of a new service, or of a new Prometheus, are younger than the window.
    """
    step = "1m" if parse_whole_seconds(alert.long) <= _FINE_SECONDS else "5m"
    nearly = round(_NEARLY * parse_whole_seconds(alert.long))
    age = (
        f"round((time() - min(min_over_time(timestamp({EVENTS}{{service=%q,slo=%q}})"
        f"[{alert.long}:{step}]))) / 60) * 60 < {nearly}"
    )
    return (
        f"{{{{ $there := printf `{age}` $labels.service $labels.slo | query }}}}"
        "{{ if $there }}over {{ $there | first | value | humanizeDuration"
        ' | reReplaceAll "( 0[hms])+$" "" }}, all there is'
        f"{{{{ else }}}}over {alert.long}{{{{ end }}}}"
    )


def _alert_rule(alert: BurnRateAlert, slo: SloSettings, runbooks: str) -> RuleTree:
    limit = f"{max_error_ratio(alert.factor, slo.objective):.10g}"
    only = f"{{slo={quote(slo.name)}}}"
    expr = (
        f"{_RATIO}{alert.long}{only} > {limit} and {_RATIO}{alert.short}{only} > {limit}"
        f" and {_ERRORS}{alert.long}{only} > {MIN_ERRORS - HALF:.10g}"
    )
    summary = (
        f"{{{{ $labels.service }}}}: {{{{ $value | humanizePercentage }}}} of {_bad_events(slo)} "
        f"{_over(alert)}: {_times(alert)} what the error budget of {{{{ $labels.slo }}}} allows "
        f"(objective {100 * slo.objective:g}%)"
    )
    return alerting_rule(
        alert.name,
        expr,
        for_=0,
        keep=KEEP_FIRING,
        # the objective is a label: Prometheus refuses rules that differ in their expression only
        labels={"severity": alert.severity, "slo": slo.name, "window": alert.long},
        annotations={"summary": summary, "runbook_url": runbook_link(alert.name, runbooks)},
    )
