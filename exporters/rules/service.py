"""The alert rules of services and of failed results as Prometheus rules.

The agent's rules on a service's gauges: quality, rates, latency, and that traces come at all.

Thresholds, windows, durations and names are the agent's own; only the words are Prometheus'.

The agent's rules on results that failed, by metric and scorer.

The agent knows the service of each result, Prometheus does not: `ragmeter_results_total` has no
such label. So there is one alert for each metric and scorer, over all services.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_duration, parse_whole_seconds
from ragmeter.core.metric_specs import MetricSpec, base_name, find_spec, parse_cutoff
from ragmeter.exporters.rules.burn_rate_rules import escape_template
from ragmeter.exporters.rules.promql import (
    HALF,
    RuleTree,
    alerting_rule,
    glob_matchers,
    hold_last_value,
    series_selector,
)
from ragmeter.exporters.snapshot import segment_labels
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.estimators import Z_95
from ragmeter.windows.failures import TRACE_REASONS

LATENCY = {
    "value": "rag_latency_quantile_seconds",
    "lower": "rag_latency_quantile_ci_lower_seconds",
    "upper": "rag_latency_quantile_ci_upper_seconds",
}
TRACES = "rag_traces_total"
TIMED = "rag_trace_duration_seconds_count"

SIDES = {"<": "below", "<=": "at or below", ">": "above", ">=": "at or above"}
VALUE = '{{ $value | printf "%.3g" }}'
SERVICE = "{{ $labels.service }}"


class UnsupportedRule(ValueError):
    """Why a rule cannot be said in Prometheus."""


def service_rule(
    rule: AlertRule,
    specs: Mapping[str, MetricSpec],
    windows: Sequence[str],
    segments: Sequence[str],
) -> RuleTree:
    """A metric, latency or absence rule. Raises `Left` for one that Prometheus cannot hold."""
    if rule.absence:
        return _absence(rule, windows)
    where = [*glob_matchers("service", rule.services), *_segment(rule, segments)]
    if rule.latency is not None:
        return _latency(rule, where)
    return _metric(rule, specs, where)


def _rule_summary(rule: AlertRule, what: str, window: str, unit: str = "") -> str:
    """The sentence of a reading that is compared with a threshold."""
    end = (
        "" if rule.statistic == "value" else f": even the {rule.statistic} end of its 95% interval"
    )
    return f"{what} over {window}{end} is {VALUE}{unit}, {SIDES[rule.op]} {rule.threshold:g}{unit}"


def _segment(rule: AlertRule, segments: Sequence[str]) -> list[str]:
    """Whole services only, or each value of the one tag that the rule looks at."""
    return [
        f'{label}{"!=" if tag == rule.segment else "="}""'
        for tag, label in segment_labels(segments).items()
    ]


def _metric(rule: AlertRule, specs: Mapping[str, MetricSpec], where: Sequence[str]) -> RuleTree:
    assert rule.metric is not None
    spec = find_spec(specs, rule.metric)
    if spec is None:
        raise UnsupportedRule(f"no metric {rule.metric!r} is exported")
    stem = f"rag_{spec.name}"
    ends = {"value": spec.gauge, "lower": f"{stem}_ci_lower", "upper": f"{stem}_ci_upper"}
    labels = {"scorer": rule.scorer, "window": rule.window}
    if k := parse_cutoff(rule.metric):
        labels["k"] = k
    expr = f"{hold_last_value(series_selector(ends[rule.statistic], labels, *where))} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:
        enough = hold_last_value(series_selector(f"{stem}_effective_samples", labels, *where))
        expr += f" and {enough} >= {rule.min_samples}"
    told = _rule_summary(rule, f"{SERVICE}{_of(rule)}: {spec.gauge} by {rule.scorer}", rule.window)
    return _alert(rule, expr, base_name(rule.metric), told, spec.meaning)


def _latency(rule: AlertRule, where: Sequence[str]) -> RuleTree:
    assert rule.latency is not None
    stage, quantile = rule.latency.stage, f"{rule.latency.quantile:g}"
    labels = {"stage": stage, "quantile": quantile, "window": rule.window}
    expr = f"{hold_last_value(series_selector(LATENCY[rule.statistic], labels, *where))} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:  # a quantile has no count of its own: the timed traces have
        timed = f"increase({series_selector(TIMED, {}, *glob_matchers('service', rule.services))}[{rule.window}])"
        expr += f" and on (job, instance, service) {timed} > {rule.min_samples - HALF:g}"
    what = f"{SERVICE}{_of(rule)}: {stage} latency p{rule.latency.quantile * 100:g}"
    told = _rule_summary(rule, what, rule.window, " s")
    return _alert(rule, expr, "latency", told, f"time that the slowest requests take ({stage})")


def _absence(rule: AlertRule, windows: Sequence[str]) -> RuleTree:
    longest = max(windows, key=parse_duration)
    where = glob_matchers("service", rule.services)
    if PROBE_SERVICE not in rule.services:  # there are none between two runs
        where.append(f'service!="{PROBE_SERVICE}"')
    series = series_selector(TRACES, {}, *where)
    expr = (
        f"sum by (service) (increase({series}[{rule.window}])) < {HALF}"
        f" and sum by (service) (increase({series}[{longest}]))"
        f" > {max(rule.min_samples, 1) - HALF:g}"
    )
    told = f"{SERVICE}: no traces in the last {rule.window}"
    return _alert(rule, expr, "traces", told, f"traces of a service that had some over {longest}")


def _of(rule: AlertRule) -> str:
    """The segment, by the label that it has."""
    if rule.segment is None:
        return ""
    (name,) = segment_labels([rule.segment]).values()
    return f" ({escape_template(rule.segment)} {{{{ $labels.{name} }}}})"


def _alert(rule: AlertRule, expr: str, metric: str, summary: str, meaning: str) -> RuleTree:
    told = {"summary": summary, "description": meaning[:1].upper() + meaning[1:] + "."}
    if rule.runbook:
        told["runbook_url"] = rule.runbook
    labels = {"severity": rule.severity, "metric": metric, "window": rule.window, **rule.labels}
    return alerting_rule(
        rule.name, expr, for_=rule.for_, keep=rule.keep_firing_for, labels=labels, annotations=told
    )


RESULTS = "ragmeter_results_total"
_BY = "sum by (metric, scorer)"
_LEVEL = "metric_scorer:ragmeter_results"


def _owed(window: str) -> str:
    return f"{_LEVEL}_owed:increase{window}"


def _share(statistic: str, window: str) -> str:
    end = {"value": "ratio", "lower": "ratio_ci_lower", "upper": "ratio_ci_upper"}[statistic]
    return f"{_LEVEL}_failed:{end}_increase{window}"


def failure_recordings(rules: Sequence[AlertRule]) -> list[RuleTree]:
    """The share of results that failed and the ends of its interval that the rules look at:
    Wilson's, as in the agent."""
    found: list[RuleTree] = []
    rest = "|".join(sorted(TRACE_REASONS))
    for window in sorted({rule.window for rule in rules}, key=parse_whole_seconds):
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
    """`ragmeter.windows.estimators.wilson` in PromQL; `increase` may stretch a share beyond 1."""
    n, p = _owed(window), f"clamp_max({share}, 1)"
    sign = "-" if end == "lower" else "+"
    half = f"{Z_95:.6g} * sqrt({p} * (1 - {p}) / {n} + {Z_95 * Z_95 / 4:.6g} / {n} ^ 2)"
    return f"clamp(({p} + {Z_95 * Z_95 / 2:.6g} / {n} {sign} {half}) / (1 + {Z_95 * Z_95:.6g} / {n}), 0, 1)"


def failure_rule(rule: AlertRule) -> RuleTree:
    """Raises `Left` where the rule is for some services only."""
    assert rule.unscored is not None
    if "*" not in rule.services:
        raise UnsupportedRule("results are counted without their service")
    where = [
        *glob_matchers(
            "metric", [rule.unscored.metric], "(:.*)?"
        ),  # with the cut-off of `ndcg_at_k:10`
        *glob_matchers("scorer", [rule.unscored.scorer]),
    ]
    only = f"{{{','.join(where)}}}" if where else ""
    expr = f"{_share(rule.statistic, rule.window)}{only} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:
        expr += f" and {_owed(rule.window)} > {rule.min_samples - HALF:g}"
    what = "results of {{ $labels.metric }} by {{ $labels.scorer }} that failed"
    told = {
        "summary": _rule_summary(rule, what, rule.window),
        "description": "Share of results without a value through a fault of the measuring itself: "
        "the judge, a model, a resolver or a limit.",
    }
    if rule.runbook:
        told["runbook_url"] = rule.runbook
    labels = {"severity": rule.severity, "window": rule.window, **rule.labels}
    return alerting_rule(
        rule.name, expr, for_=rule.for_, keep=rule.keep_firing_for, labels=labels, annotations=told
    )
