"""Every exported metric family, in one place: HELP and TYPE lines and the docs come from here.

`python -m exporters.reference docs/metrics.md` writes the table between the marks of that page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from agent.alerts import load_rules
from agent.metrics import METRICS
from agent.metrics.names import base
from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from agent.rules import in_words
from exporters.exposition import Family
from exporters.service_families import CONSISTENCY, INDEXING

__all__ = [
    "BEGIN",
    "END",
    "HEALTH",
    "LATENCY",
    "PROCESS",
    "TRAFFIC",
    "families",
    "quality_families",
    "table",
    "update",
]

BEGIN = "<!-- names:begin -->"
END = "<!-- names:end -->"

_LATENCY = ("service", "stage", "quantile", "window")


def quality_families(spec: MetricSpec) -> tuple[Family, Family, Family, Family, Family]:
    """Point estimate, lower bound, upper bound, effective samples of one quality metric, and the
    share of traces that have none."""
    what = spec.meaning.strip().rstrip(".")
    what = what[:1].upper() + what[1:]
    over = "over the window" if spec.kind == "ratio" else "mean over the window"
    stem = f"rag_{spec.name}"
    unit = "ratio" if spec.kind == "ratio" else spec.unit

    # a version of its own has what was not built in: a judge, a model
    version = ("fingerprint",) if set(spec.scorers) - {BUILTIN} else ()
    labels = ("service", "scorer", *version, *spec.labels, "window")

    def family(name: str, text: str, unit: str = "") -> Family:
        return Family(name, "gauge", text, labels, unit, "Quality", segmented=True)

    return (
        family(spec.gauge, f"{what}; {over}.", unit),
        family(f"{stem}_ci_lower", f"Lower end of the 95% interval of {spec.gauge}.", unit),
        family(f"{stem}_ci_upper", f"Upper end of the 95% interval of {spec.gauge}.", unit),
        family(
            f"{stem}_effective_samples",
            f"Equally weighted traces that would carry as much evidence as {spec.gauge} has.",
        ),
        Family(
            f"{stem}_unscored_ratio",
            "gauge",
            f"Share of the traces that {spec.gauge} should cover and that got no value.",
            labels,
            "ratio",
            "Quality",
        ),
    )


LATENCY = (
    Family(
        "rag_latency_quantile_seconds", "gauge",
        "Quantile of a stage's latency over the window, within 1% of the true value.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    Family(
        "rag_latency_quantile_ci_lower_seconds", "gauge",
        "Lower end of the 95% interval of rag_latency_quantile_seconds.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    Family(
        "rag_latency_quantile_ci_upper_seconds", "gauge",
        "Upper end of the 95% interval of rag_latency_quantile_seconds.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    Family(
        "rag_trace_duration_seconds", "histogram",
        "Whole duration of a trace; buckets carry a trace id as exemplar (OpenMetrics).",
        ("service",), "seconds", "Latency",
    ),
)  # fmt: skip

TRAFFIC = (
    Family(
        "rag_traces_total", "counter", "Traces by how they ended: ok, error or timeout.",
        ("service", "status"), "", "Traffic",
    ),
    Family(
        "rag_canaries_total", "counter",
        "Canaries by how they ended: ok, error or timeout. They are no part of any other count.",
        ("service", "status"), "", "Traffic",
    ),
    Family(
        "rag_tokens_total", "counter", "Tokens that the traces report, input and output.",
        ("service", "direction"), "", "Traffic",
    ),
    Family(
        "rag_cost_usd_total", "counter", "Cost that the traces report, in US dollars.",
        ("service",), "usd", "Traffic",
    ),
    Family(
        "rag_slo_events_total", "counter",
        "Events that count for an objective, weighted by the inverse sampling probability.",
        ("service", "slo"), "", "Objectives",
    ),
    Family(
        "rag_slo_bad_events_total", "counter",
        "Events that broke an objective, weighted by the inverse sampling probability.",
        ("service", "slo"), "", "Objectives",
    ),
    Family(
        "rag_slo_bad_events_squared_total", "counter",
        "Squared weights of events that broke an objective: for their effective number.",
        ("service", "slo"), "", "Objectives",
    ),
)  # fmt: skip

HEALTH = (
    Family(
        "ragmeter_traces_received_total", "counter",
        "Readable traces that came in, duplicates included.",
        ("source",), "", "Agent",
    ),
    Family(
        "ragmeter_traces_duplicate_total", "counter",
        "Traces whose id was seen before within the dedupe horizon; they change nothing.",
        ("source",), "", "Agent",
    ),
    Family(
        "ragmeter_dead_letters_total", "counter",
        "Messages that could not be read, kept with their reason.",
        ("reason",), "", "Agent",
    ),
    Family(
        "ragmeter_redactions_total", "counter",
        "Findings of a privacy rule that were replaced as they came in.",
        ("rule",), "", "Agent",
    ),
    Family(
        "ragmeter_redaction_failures_total", "counter",
        "Texts dropped because a privacy rule could not be applied: timeout, resting, error.",
        ("rule", "reason"), "", "Agent",
    ),
    Family(
        "ragmeter_resolver_requests_total", "counter",
        "Texts of passages that were asked for, by how that ended.",
        ("resolver", "outcome"), "", "Agent",
    ),
    Family(
        "ragmeter_feedback_received_total", "counter", "Readable feedback that came in.",
        ("source",), "", "Agent",
    ),
    Family(
        "ragmeter_feedback_total", "counter",
        "Feedback by what became of it: joined, repeated, unmatched (no such trace within the"
        " horizon), late, ambiguous, no_such_passage, too_many_scorers, shed, internal_error.",
        ("outcome",), "", "Agent",
    ),
    Family(
        "ragmeter_feedback_waiting", "gauge",
        "Accepted feedback that waits for its trace, or to be looked at.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_feedback_traces", "gauge", "Traces that labels can be joined to.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_feedback_traces_shed_total", "counter",
        "Traces forgotten before their horizon ended, for want of room (feedback.traces).",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_held_traces", "gauge",
        "Accepted traces that wait for the texts of their passages.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_results_total", "counter",
        "Results by the state in which a trace ended for a metric; the reason if unscored.",
        ("metric", "scorer", "state", "reason"), "", "Agent",
    ),
    Family(
        "ragmeter_seen_total", "counter", "Traces that a metric has seen, whatever their state.",
        ("metric", "scorer"), "", "Agent",
    ),
    Family(
        "ragmeter_accounting_mismatch", "gauge",
        "Distance between ragmeter_seen_total and the sum of ragmeter_results_total and of what"
        " waits for a judge or model; always 0.",
        ("metric", "scorer"), "", "Agent",
    ),
    Family(
        "ragmeter_label_overflow_total", "counter",
        "Label values over the limit on their number, published as __other__.",
        ("label",), "", "Agent",
    ),
    Family(
        "ragmeter_otlp_spans_total", "counter",
        "Spans and log events that came over OTLP, by what became of them: accepted, duplicate,"
        " late (their trace was closed), over_limit, own, or why they could not be read.",
        ("signal", "result"), "", "OTLP",
    ),
    Family(
        "ragmeter_otlp_traces_total", "counter",
        "Traces of spans that were closed, by why: root (it is in, and quiet), idle, age, spans,"
        " bytes, evicted (too many were open).",
        ("result",), "", "OTLP",
    ),
    Family(
        "ragmeter_otlp_dropped_total", "counter",
        "Parts of traces of spans that are no request, by why.",
        ("reason",), "", "OTLP",
    ),
    Family(
        "ragmeter_otlp_open_traces", "gauge", "Traces of spans that are not complete yet.",
        (), "", "OTLP",
    ),
    Family(
        "ragmeter_otlp_open_bytes", "gauge", "What their spans take, by otlp.max_open_bytes.",
        (), "bytes", "OTLP",
    ),
    Family(
        "ragmeter_replayed_total", "counter",
        "Records of scores, spans or labels that came again (after a crash, a rebalance): counted"
        " before.",
        (), "", "Kafka",
    ),
    Family(
        "ragmeter_unexpected_results_total", "counter",
        "Results in the topic of the scores that these settings do not ask for; not counted.",
        (), "", "Kafka",
    ),
    Family(
        "ragmeter_kafka_deleted_unread_total", "counter",
        "Offsets that the retention had deleted before they were read: traces were lost.",
        ("topic",), "", "Kafka",
    ),
    Family(
        "ragmeter_clock_skew_total", "counter",
        "Traces with a timestamp from the future, set back to when they came.",
        ("source",), "", "Agent",
    ),
    Family(
        "ragmeter_notifications_total", "counter",
        "Alert notifications by target and by how the delivery ended.",
        ("target", "outcome"), "", "Agent",
    ),
    Family(
        "ragmeter_results_exported_total", "counter",
        "Results on their way to the OTLP receiver by how they ended; all but sent were dropped.",
        ("signal", "result"), "", "Agent",
    ),
    Family(
        "ragmeter_state_quarantined_total", "counter",
        "State files that were damaged and moved aside.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_processing_lag_seconds", "gauge",
        "Wall clock minus the event time that is processed; absent in a replay, and of workers on"
        " Kafka.",
        (), "seconds", "Agent",
    ),
    Family(
        "ragmeter_oldest_unprocessed_seconds", "gauge",
        "Age of the oldest trace that still waits; 0 when none waits; absent of workers on Kafka.",
        (), "seconds", "Agent",
    ),
    Family(
        "ragmeter_queue_depth", "gauge", "Accepted traces that wait to be scored.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_drawn_traces", "gauge",
        "Accepted traces that wait for a judge, a model or an embedding.",
        ("tier",), "", "Agent",
    ),
    Family(
        "ragmeter_instrument_changes_total", "counter",
        "Changes of the fingerprint that a metric goes on with, also back to an earlier one.",
        ("metric", "scorer"), "", "Judge",
    ),
    Family(
        "ragmeter_judge_requests_total", "counter", "Attempts to call a judge by how they ended.",
        ("judge", "outcome"), "", "Judge",
    ),
    Family(
        "ragmeter_judge_verdicts_total", "counter",
        "Questions by how they were answered: kept (no call), shared (the call of another), asked.",
        ("judge", "source"), "", "Judge",
    ),
    Family(
        "ragmeter_judge_tokens_total", "counter", "Tokens of all attempts, input and output.",
        ("judge", "direction"), "", "Judge",
    ),
    Family(
        "ragmeter_judge_cost_usd_total", "counter",
        "Cost of all attempts by the configured prices, in US dollars.",
        ("judge",), "usd", "Judge",
    ),
    Family(
        "ragmeter_canary_judge_requests_total", "counter",
        "Attempts to call a judge for canaries, of all attempts.",
        (), "", "Judge",
    ),
    Family(
        "ragmeter_canary_judge_tokens_total", "counter",
        "Tokens of the attempts for canaries, in and out together.",
        (), "", "Judge",
    ),
    Family(
        "ragmeter_canary_judge_cost_usd_total", "counter",
        "Cost of the attempts for canaries by the configured prices, in US dollars.",
        (), "usd", "Judge",
    ),
    Family(
        "ragmeter_judge_up", "gauge", "1 while a judge is asked, 0 while its breaker is open.",
        ("judge",), "", "Judge",
    ),
    Family(
        "ragmeter_judge_in_flight", "gauge", "Calls that a judge has not answered yet.",
        ("judge",), "", "Judge",
    ),
    Family(
        "ragmeter_judge_in_flight_limit", "gauge",
        "Calls that may be in flight: judge.concurrency, less while the judge is overloaded.",
        ("judge",), "", "Judge",
    ),
    Family(
        "ragmeter_sampling_scale", "gauge",
        "What budget and capacity leave of the configured sampling rate, 0 to 1.",
        ("tier", "service"), "", "Judge",
    ),
    Family(
        "ragmeter_judge_info", "info", "Each judge as it is asked and served now.",
        (
            "judge", "model", "served", "system_fingerprint", "prompt", "prompt_hash",
            "fingerprint",
        ), "", "Judge",
    ),
    Family(
        "ragmeter_drift_statistic", "gauge",
        "Statistic of a drift detector over its threshold; 1 raises the alarm, and it stays there"
        " while the alarm stands. For latency the metric is the stage.",
        ("service", "metric", "scorer", "kind"), "", "Drift",
    ),
    Family(
        "ragmeter_drift_alarms_total", "counter", "Alarms of a drift detector that became alerts.",
        ("service", "metric", "scorer", "kind"), "", "Drift",
    ),
    Family(
        "ragmeter_drift_series_refused", "gauge",
        "Series that no detector watches because drift.max_series are watched already.",
        (), "", "Drift",
    ),
    Family(
        "ragmeter_alerts_refused", "gauge",
        "Conditions that hold at the last evaluation, and drift alarms so far, without an alert"
        " because there are too many.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_ready", "gauge", "1 when the agent is ready, 0 when /readyz says why not.",
        (), "", "Agent",
    ),
    Family(
        "ragmeter_stream_time_seconds", "gauge",
        "Event time up to which the windows have come, as Unix time; absent before the first.",
        (), "seconds", "Agent",
    ),
    Family(
        "ragmeter_alerts_firing", "gauge", "Alerts that fire now.",
        ("alertname", "severity"), "", "Agent",
    ),
    Family("ragmeter_build_info", "info", "Version of ragmeter.", ("version",), "", "Agent"),
)  # fmt: skip


def _process(name: str, text: str, labels: tuple[str, ...] = (), unit: str = "") -> Family:
    kind = "counter" if name.endswith("_total") else "gauge"
    return Family(name, kind, text, labels, unit, "Process", ours=False)  # type: ignore[arg-type]


# Written by prometheus_client's own collectors; listed so that the docs are whole.
PROCESS = (
    _process(
        "ragmeter_http_refused_total",
        "Requests and connections that a port refused, by why: no_token, wrong_token, certificate,"
        " closed, host, origin, tls (no handshake), slow, connections (too many).",
        ("port", "reason"),
    ),
    _process("process_virtual_memory_bytes", "Virtual memory.", unit="bytes"),
    _process("process_resident_memory_bytes", "Resident memory.", unit="bytes"),
    _process("process_start_time_seconds", "Start of the process, Unix time.", unit="seconds"),
    _process("process_cpu_seconds_total", "User and system CPU time.", unit="seconds"),
    _process("process_open_fds", "Open file descriptors."),
    _process("process_max_fds", "Limit on open file descriptors."),
    _process(
        "python_info",
        "The Python that runs it.",
        ("implementation", "major", "minor", "patchlevel", "version"),
    ),
    _process("python_gc_objects_collected_total", "Objects collected.", ("generation",)),
    _process("python_gc_objects_uncollectable_total", "Objects that cannot be.", ("generation",)),
    _process("python_gc_collections_total", "Collections.", ("generation",)),
)


def families(specs: Mapping[str, MetricSpec] = METRICS) -> list[Family]:
    """All families, in the order in which they are exported."""
    quality = [family for spec in specs.values() for family in quality_families(spec)]
    return [*quality, *LATENCY, *TRAFFIC, *CONSISTENCY, *INDEXING, *HEALTH, *PROCESS]


def table(specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The generated part of docs/metrics.md: the quality metrics, then every name."""
    rules: dict[str, list[str]] = {}
    for rule in load_rules():
        if rule.metric is not None:
            rules.setdefault(base(rule.metric), []).append(in_words(rule))
    lines = [
        "### What is measured",
        "",
        "| metric | gauge | tier | scorers | range | better | meaning | formula | needs | source"
        " | default rule (balanced) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for spec in specs.values():
        about = (
            f"`{spec.name}`", f"`{spec.gauge}`", spec.tier,
            ", ".join(f"`{name}`" for name in spec.scorers), spec.range, spec.good or "neither",
            spec.meaning, spec.formula, spec.needs, spec.source,
            "; ".join(rules.get(spec.name, ())),
        )  # fmt: skip
        lines.append(_row(about))
    lines += [
        "",
        "### Every name",
        "",
        "| name | type | unit | labels | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for family in families(specs):
        labels = [f"`{label}`" for label in family.labels]
        if family.segmented:
            labels.append("segment tags")
        cells = (f"`{family.name}`", str(family.type), family.unit, ", ".join(labels), family.help)
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    escaped = [cell.replace("\n", " ").replace("|", r"\|") for cell in cells]
    return "| " + " | ".join(escaped) + " |"


def update(page: str, specs: Mapping[str, MetricSpec] = METRICS) -> str:
    """The page with the block between its marks written anew. ValueError without the marks."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"no {BEGIN} … {END} in the page")
    return f"{before}{BEGIN}\n{table(specs)}\n{END}{after}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(update(path.read_text("utf-8")), "utf-8")
