"""The agent's rules on results that failed, by metric and scorer.

The agent knows the service of each result, Prometheus does not: `ragmeter_results_total` has no
such label. So there is one alert for each metric and scorer, over all services.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.alerts.durations import whole_seconds
from agent.alerts.rules import Rule
from agent.windows.estimators import Z
from agent.windows.failures import TRACED_SO
from exporters.rules.promql import HALF, Tree, alert, globs
from exporters.rules.service import Left, story

__all__ = ["failed_rule", "recorded"]

RESULTS = "ragmeter_results_total"
_BY = "sum by (metric, scorer)"
_LEVEL = "metric_scorer:ragmeter_results"


def _owed(window: str) -> str:
    return f"{_LEVEL}_owed:increase{window}"


def _share(statistic: str, window: str) -> str:
    end = {"value": "ratio", "lower": "ratio_ci_lower", "upper": "ratio_ci_upper"}[statistic]
    return f"{_LEVEL}_failed:{end}_increase{window}"


def recorded(rules: Sequence[Rule]) -> list[Tree]:
    """The share of results that failed and the ends of its interval that the rules look at:
    Wilson's, as in the agent."""
    found: list[Tree] = []
    rest = "|".join(sorted(TRACED_SO))
    for window in sorted({rule.window for rule in rules}, key=whole_seconds):
        owed = f'{_BY} (increase({RESULTS}{{state=~"scored|unscored|shed"}}[{window}]))'
        lost = f'{_BY} (increase({RESULTS}{{state="unscored",reason!~"{rest}"}}[{window}]))'
        share = _share("value", window)
        found += [
            {"record": _owed(window), "expr": owed},
            {"record": share, "expr": f"{lost} / ({_owed(window)} > 0)"},
        ]
        ends = {rule.statistic for rule in rules if rule.window == window} - {"value"}
        for end in sorted(ends):
            found.append({"record": _share(end, window), "expr": _wilson(end, share, window)})
    return found


def _wilson(end: str, share: str, window: str) -> str:
    """`agent.windows.estimators.wilson` in PromQL; `increase` may stretch a share beyond 1."""
    n, p = _owed(window), f"clamp_max({share}, 1)"
    sign = "-" if end == "lower" else "+"
    half = f"{Z:.6g} * sqrt({p} * (1 - {p}) / {n} + {Z * Z / 4:.6g} / {n} ^ 2)"
    return f"clamp(({p} + {Z * Z / 2:.6g} / {n} {sign} {half}) / (1 + {Z * Z:.6g} / {n}), 0, 1)"


def failed_rule(rule: Rule) -> Tree:
    """Raises `Left` where the rule is for some services only."""
    assert rule.unscored is not None
    if "*" not in rule.services:
        raise Left("results are counted without their service")
    where = [
        *globs("metric", [rule.unscored.metric], "(:.*)?"),  # with the cut-off of `ndcg_at_k:10`
        *globs("scorer", [rule.unscored.scorer]),
    ]
    only = f"{{{','.join(where)}}}" if where else ""
    expr = f"{_share(rule.statistic, rule.window)}{only} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:
        expr += f" and {_owed(rule.window)} > {rule.min_samples - HALF:g}"
    what = "results of {{ $labels.metric }} by {{ $labels.scorer }} that failed"
    told = {
        "summary": story(rule, what, rule.window),
        "description": "Share of results without a value through a fault of the measuring itself: "
        "the judge, a model, a resolver or a limit.",
    }
    if rule.runbook:
        told["runbook_url"] = rule.runbook
    labels = {"severity": rule.severity, "window": rule.window, **rule.labels}
    return alert(
        rule.name, expr, for_=rule.for_, keep=rule.keep_firing_for, labels=labels, annotations=told
    )
