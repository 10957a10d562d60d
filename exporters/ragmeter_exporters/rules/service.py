"""The alert rules of services and of failed results as Prometheus rules.

Thresholds, windows, durations and names are the agent's own. The agent knows the service of each
result and Prometheus does not, as `ragmeter_results_total` has no such label: of failed results
there is one alert for each metric and scorer, over all services.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_duration, parse_whole_seconds
from ragmeter.core.errors import RagmeterError
from ragmeter.core.metric_specs import MetricSpec, base_name, find_spec, parse_cutoff
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.estimators import Z_95
from ragmeter.windows.failures import TRACE_REASONS

from ragmeter_exporters.rules.promql import (
    HALF,
    RuleTree,
    agent_rule,
    escape_template,
    glob_matchers,
    hold_last_value,
    series_selector,
)
from ragmeter_exporters.snapshot import segment_labels

LATENCY = {
    "value": "rag_latency_quantile_seconds",
    "lower": "rag_latency_quantile_ci_lower_seconds",
    "upper": "rag_latency_quantile_ci_upper_seconds",
}
TRACES = "rag_traces_total"
TIMED = "rag_trace_duration_seconds_count"
RESULTS = "ragmeter_results_total"

SIDES = {"<": "below", "<=": "at or below", ">": "above", ">=": "at or above"}
VALUE = '{{ $value | printf "%.3g" }}'
SERVICE = "{{ $labels.service }}"

_BY = "sum by (metric, scorer)"
_LEVEL = "metric_scorer:ragmeter_results"


class UnsupportedRule(RagmeterError, ValueError):
    """A rule that Prometheus cannot express; the text says why."""


def service_rule(
    rule: AlertRule,
    specs: Mapping[str, MetricSpec],
    windows: Sequence[str],
    segments: Sequence[str],
) -> RuleTree:
    """Build a metric, latency or absence rule; `windows` and `segments` are those of the agent.

    Raises:
        UnsupportedRule: The metric is not exported.
    """
    if rule.absence:
        return _absence_rule(rule, windows)
    # Whole services only, or each value of the one tag that the rule looks at.
    tags = [
        f'{label}{"!=" if tag == rule.segment else "="}""'
        for tag, label in segment_labels(segments).items()
    ]
    matchers = [*glob_matchers("service", rule.services), *tags]
    if rule.latency is not None:
        return _latency_rule(rule, matchers)
    return _metric_rule(rule, specs, matchers)


def failure_rule(rule: AlertRule) -> RuleTree:
    """Build a rule on the share of failed results.

    Raises:
        UnsupportedRule: The rule is for some services only.
    """
    assert rule.unscored is not None
    if "*" not in rule.services:
        raise UnsupportedRule("results are counted without their service")
    matchers = [
        *glob_matchers("metric", [rule.unscored.metric], "(:.*)?"),  # with the cut-off `:10`
        *glob_matchers("scorer", [rule.unscored.scorer]),
    ]
    share = series_selector(_share(rule.statistic, rule.window), {}, *matchers)
    expr = f"{share} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:
        expr += f" and {_due(rule.window)} > {rule.min_samples - HALF:g}"
    subject = "results of {{ $labels.metric }} by {{ $labels.scorer }} that failed"
    annotations = {
        "summary": _summary(rule, subject),
        "description": "Share of results without a value through a fault of the measuring itself: "
        "the judge, a model, a resolver or a limit.",
    }
    return agent_rule(rule, expr, {"window": rule.window}, annotations)


def failure_recordings(rules: Sequence[AlertRule]) -> list[RuleTree]:
    """Record the share of failed results and the interval ends that the rules look at."""
    recordings: list[RuleTree] = []
    reasons = "|".join(sorted(TRACE_REASONS))
    for window in sorted({rule.window for rule in rules}, key=parse_whole_seconds):
        due = f'{_BY} (increase({RESULTS}{{state=~"scored|unscored|shed"}}[{window}]))'
        lost = f'{_BY} (increase({RESULTS}{{state="unscored",reason!~"{reasons}"}}[{window}]))'
        share = _share("value", window)
        recordings += [
            {"record": _due(window), "expr": due},
            {"record": share, "expr": f"{lost} / ({_due(window)} > 0)"},
        ]
        ends = {rule.statistic for rule in rules if rule.window == window} - {"value"}
        recordings += [
            {"record": _share(end, window), "expr": _wilson_end(end, share, window)}
            for end in sorted(ends)
        ]
    return recordings


def _metric_rule(
    rule: AlertRule, specs: Mapping[str, MetricSpec], matchers: Sequence[str]
) -> RuleTree:
    assert rule.metric is not None
    spec = find_spec(specs, rule.metric)
    if spec is None:
        raise UnsupportedRule(f"no metric {rule.metric!r} is exported")
    stem = f"rag_{spec.name}"
    ends = {"value": spec.gauge, "lower": f"{stem}_ci_lower", "upper": f"{stem}_ci_upper"}
    labels = {"scorer": rule.scorer, "window": rule.window}
    if k := parse_cutoff(rule.metric):
        labels["k"] = k
    expr = hold_last_value(series_selector(ends[rule.statistic], labels, *matchers))
    enough = ""
    if rule.min_samples:
        samples = series_selector(f"{stem}_effective_samples", labels, *matchers)
        enough = f" and {hold_last_value(samples)} >= {rule.min_samples}"
    if rule.relative_to is None:
        expr += f" {rule.op} {rule.threshold:.10g}{enough}"
    else:
        other = ends["lower" if rule.statistic == "upper" else "upper"]
        usual = series_selector(other, labels | {"window": rule.relative_to}, *matchers)
        multiple = f"{rule.threshold:.10g} * {hold_last_value(usual)}"
        expr = f"({expr}{enough}) {rule.op} ignoring (window) ({multiple})"
    summary = _summary(rule, f"{SERVICE}{_segment(rule)}: {spec.gauge} by {rule.scorer}")
    return _service_alert(rule, expr, base_name(rule.metric), summary, spec.meaning)


def _latency_rule(rule: AlertRule, matchers: Sequence[str]) -> RuleTree:
    assert rule.latency is not None
    stage, quantile = rule.latency.stage, f"{rule.latency.quantile:g}"
    labels = {"stage": stage, "quantile": quantile, "window": rule.window}
    gauge = hold_last_value(series_selector(LATENCY[rule.statistic], labels, *matchers))
    expr = f"{gauge} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:  # a quantile has no count of its own: the timed traces have
        timed = series_selector(TIMED, {}, *glob_matchers("service", rule.services))
        enough = f"increase({timed}[{rule.window}]) > {rule.min_samples - HALF:g}"
        expr += f" and on (job, instance, service) {enough}"
    subject = f"{SERVICE}{_segment(rule)}: {stage} latency p{rule.latency.quantile * 100:g}"
    meaning = f"time that the slowest requests take ({stage})"
    return _service_alert(rule, expr, "latency", _summary(rule, subject, " s"), meaning)


def _absence_rule(rule: AlertRule, windows: Sequence[str]) -> RuleTree:
    longest = max(windows, key=parse_duration)
    matchers = glob_matchers("service", rule.services)
    if PROBE_SERVICE not in rule.services:  # it has no traces between two runs
        matchers.append(f'service!="{PROBE_SERVICE}"')
    series = series_selector(TRACES, {}, *matchers)
    expr = (
        f"sum by (service) (increase({series}[{rule.window}])) < {HALF}"
        f" and sum by (service) (increase({series}[{longest}]))"
        f" > {max(rule.min_samples, 1) - HALF:g}"
    )
    summary = f"{SERVICE}: no traces in the last {rule.window}"
    meaning = f"traces of a service that had some over {longest}"
    return _service_alert(rule, expr, "traces", summary, meaning)


def _service_alert(rule: AlertRule, expr: str, metric: str, summary: str, meaning: str) -> RuleTree:
    annotations = {"summary": summary, "description": f"{meaning[:1].upper()}{meaning[1:]}."}
    return agent_rule(rule, expr, {"metric": metric, "window": rule.window}, annotations)


def _summary(rule: AlertRule, subject: str, unit: str = "") -> str:
    end = (
        "" if rule.statistic == "value" else f": even the {rule.statistic} end of its 95% interval"
    )
    limit = f"{SIDES[rule.op]} {rule.threshold:g}{unit}"
    if rule.relative_to is not None:
        limit += f" times that over {rule.relative_to}"
    return f"{subject} over {rule.window}{end} is {VALUE}{unit}, {limit}"


def _segment(rule: AlertRule) -> str:
    if rule.segment is None:
        return ""
    (label,) = segment_labels([rule.segment]).values()
    return f" ({escape_template(rule.segment)} {{{{ $labels.{label} }}}})"


def _due(window: str) -> str:
    return f"{_LEVEL}_owed:increase{window}"


def _share(statistic: str, window: str) -> str:
    end = {"value": "ratio", "lower": "ratio_ci_lower", "upper": "ratio_ci_upper"}[statistic]
    return f"{_LEVEL}_failed:{end}_increase{window}"


def _wilson_end(end: str, share: str, window: str) -> str:
    """Write `wilson_interval` in PromQL; `increase` may stretch a share beyond 1."""
    n, p, zz = _due(window), f"clamp_max({share}, 1)", Z_95 * Z_95
    sign = "-" if end == "lower" else "+"
    half = f"{Z_95:.6g} * sqrt({p} * (1 - {p}) / {n} + {zz / 4:.6g} / {n} ^ 2)"
    centre = f"{p} + {zz / 2:.6g} / {n}"
    return f"clamp(({centre} {sign} {half}) / (1 + {zz:.6g} / {n}), 0, 1)"
