"""The agent's rules on a service's gauges: quality, rates, latency, and that traces come at all.

Thresholds, windows, durations and names are the agent's own; only the words are Prometheus'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.alerts.durations import parse_duration
from agent.alerts.prometheus_rules import literal
from agent.alerts.rules import Rule
from agent.metrics.judges import PROBES
from agent.metrics.names import base, cutoff, spec_of
from agent.metrics.spec import MetricSpec
from exporters.rules.promql import HALF, Tree, alert, globs, held, selector
from exporters.snapshot import segment_labels

__all__ = ["Left", "service_rule", "story"]

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


class Left(ValueError):
    """Why a rule cannot be said in Prometheus."""


def service_rule(
    rule: Rule,
    specs: Mapping[str, MetricSpec],
    windows: Sequence[str],
    segments: Sequence[str],
) -> Tree:
    """A metric, latency or absence rule. Raises `Left` for one that Prometheus cannot hold."""
    if rule.absence:
        return _absence(rule, windows)
    where = [*globs("service", rule.services), *_segment(rule, segments)]
    if rule.latency is not None:
        return _latency(rule, where)
    return _metric(rule, specs, where)


def story(rule: Rule, what: str, window: str, unit: str = "") -> str:
    """The sentence of a reading that is compared with a threshold."""
    end = (
        "" if rule.statistic == "value" else f": even the {rule.statistic} end of its 95% interval"
    )
    return f"{what} over {window}{end} is {VALUE}{unit}, {SIDES[rule.op]} {rule.threshold:g}{unit}"


def _segment(rule: Rule, segments: Sequence[str]) -> list[str]:
    """Whole services only, or each value of the one tag that the rule looks at."""
    return [
        f'{label}{"!=" if tag == rule.segment else "="}""'
        for tag, label in segment_labels(segments).items()
    ]


def _metric(rule: Rule, specs: Mapping[str, MetricSpec], where: Sequence[str]) -> Tree:
    assert rule.metric is not None
    spec = spec_of(specs, rule.metric)
    if spec is None:
        raise Left(f"no metric {rule.metric!r} is exported")
    stem = f"rag_{spec.name}"
    ends = {"value": spec.gauge, "lower": f"{stem}_ci_lower", "upper": f"{stem}_ci_upper"}
    labels = {"scorer": rule.scorer, "window": rule.window}
    if k := cutoff(rule.metric):
        labels["k"] = k
    expr = f"{held(selector(ends[rule.statistic], labels, *where))} {rule.op} {rule.threshold:.10g}"
    if rule.min_samples:
        enough = held(selector(f"{stem}_effective_samples", labels, *where))
        expr += f" and {enough} >= {rule.min_samples}"
    told = story(rule, f"{SERVICE}{_of(rule)}: {spec.gauge} by {rule.scorer}", rule.window)
    return _alert(rule, expr, base(rule.metric), told, spec.meaning)


def _latency(rule: Rule, where: Sequence[str]) -> Tree:
    assert rule.latency is not None
    stage, quantile = rule.latency.stage, f"{rule.latency.quantile:g}"
    labels = {"stage": stage, "quantile": quantile, "window": rule.window}
    expr = (
        f"{held(selector(LATENCY[rule.statistic], labels, *where))} {rule.op} {rule.threshold:.10g}"
    )
    if rule.min_samples:  # a quantile has no count of its own: the timed traces have
        timed = f"increase({selector(TIMED, {}, *globs('service', rule.services))}[{rule.window}])"
        expr += f" and on (job, instance, service) {timed} > {rule.min_samples - HALF:g}"
    what = f"{SERVICE}{_of(rule)}: {stage} latency p{rule.latency.quantile * 100:g}"
    told = story(rule, what, rule.window, " s")
    return _alert(rule, expr, "latency", told, f"time that the slowest requests take ({stage})")


def _absence(rule: Rule, windows: Sequence[str]) -> Tree:
    longest = max(windows, key=parse_duration)
    where = globs("service", rule.services)
    if PROBES not in rule.services:  # there are none between two runs
        where.append(f'service!="{PROBES}"')
    series = selector(TRACES, {}, *where)
    expr = (
        f"sum by (service) (increase({series}[{rule.window}])) < {HALF}"
        f" and sum by (service) (increase({series}[{longest}]))"
        f" > {max(rule.min_samples, 1) - HALF:g}"
    )
    told = f"{SERVICE}: no traces in the last {rule.window}"
    return _alert(rule, expr, "traces", told, f"traces of a service that had some over {longest}")


def _of(rule: Rule) -> str:
    """The segment, by the label that it has."""
    if rule.segment is None:
        return ""
    (name,) = segment_labels([rule.segment]).values()
    return f" ({literal(rule.segment)} {{{{ $labels.{name} }}}})"


def _alert(rule: Rule, expr: str, metric: str, summary: str, meaning: str) -> Tree:
    told = {"summary": summary, "description": meaning[:1].upper() + meaning[1:] + "."}
    if rule.runbook:
        told["runbook_url"] = rule.runbook
    labels = {"severity": rule.severity, "metric": metric, "window": rule.window, **rule.labels}
    return alert(
        rule.name, expr, for_=rule.for_, keep=rule.keep_firing_for, labels=labels, annotations=told
    )
