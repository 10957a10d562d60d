"""Metric families of the agent itself and of its process."""

from __future__ import annotations

from ragmeter.exporters.exposition import MetricFamily

HEALTH = (
    MetricFamily(
        "ragmeter_traces_received_total", "counter",
        "Readable traces that came in, duplicates included.",
        ("source",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_traces_duplicate_total", "counter",
        "Traces whose id was seen before within the dedupe horizon; they change nothing.",
        ("source",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_dead_letters_total", "counter",
        "Messages that could not be read, kept with their reason.",
        ("reason",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_redactions_total", "counter",
        "Findings of a privacy rule that were replaced as they came in.",
        ("rule",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_redaction_failures_total", "counter",
        "Texts dropped because a privacy rule could not be applied: timeout, resting, error.",
        ("rule", "reason"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_resolver_requests_total", "counter",
        "Texts of passages that were asked for, by how that ended.",
        ("resolver", "outcome"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_feedback_received_total", "counter", "Readable feedback that came in.",
        ("source",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_feedback_total", "counter",
        "Feedback by what became of it: joined, repeated, unmatched (no such trace within the"
        " horizon), late, ambiguous, no_such_passage, too_many_scorers, shed, internal_error.",
        ("outcome",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_feedback_waiting", "gauge",
        "Accepted feedback that waits for its trace, or to be looked at.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_feedback_traces", "gauge", "Traces that labels can be joined to.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_feedback_traces_shed_total", "counter",
        "Traces forgotten before their horizon ended, for want of room (feedback.traces).",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_held_traces", "gauge",
        "Accepted traces that wait for the texts of their passages.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_results_total", "counter",
        "Results by the state in which a trace ended for a metric; the reason if unscored.",
        ("metric", "scorer", "state", "reason"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_seen_total", "counter", "Traces that a metric has seen, whatever their state.",
        ("metric", "scorer"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_accounting_mismatch", "gauge",
        "Distance between ragmeter_seen_total and the sum of ragmeter_results_total and of what"
        " waits for a judge or model, or, if larger, the results that were delivered without being"
        " owed; always 0.",
        ("metric", "scorer"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_label_overflow_total", "counter",
        "Label values over the limit on their number, published as __other__.",
        ("label",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_otlp_spans_total", "counter",
        "Spans and log events that came over OTLP, by what became of them: accepted, duplicate,"
        " late (their trace was closed), over_limit, own, or why they could not be read.",
        ("signal", "result"), "", "OTLP",
    ),
    MetricFamily(
        "ragmeter_otlp_traces_total", "counter",
        "Traces of spans that were closed, by why: root (it is in, and quiet), idle, age, spans,"
        " bytes, evicted (too many were open).",
        ("result",), "", "OTLP",
    ),
    MetricFamily(
        "ragmeter_otlp_dropped_total", "counter",
        "Parts of traces of spans that are no request, by why.",
        ("reason",), "", "OTLP",
    ),
    MetricFamily(
        "ragmeter_otlp_open_traces", "gauge", "Traces of spans that are not complete yet.",
        (), "", "OTLP",
    ),
    MetricFamily(
        "ragmeter_otlp_open_bytes", "gauge", "What their spans take, by otlp.max_open_bytes.",
        (), "bytes", "OTLP",
    ),
    MetricFamily(
        "ragmeter_replayed_total", "counter",
        "Records of scores, spans or labels that came again (after a crash, a rebalance): counted"
        " before.",
        (), "", "Kafka",
    ),
    MetricFamily(
        "ragmeter_unexpected_results_total", "counter",
        "Results in the topic of the scores that these settings do not ask for; not counted.",
        (), "", "Kafka",
    ),
    MetricFamily(
        "ragmeter_kafka_deleted_unread_total", "counter",
        "Offsets that the retention had deleted before they were read: traces were lost.",
        ("topic",), "", "Kafka",
    ),
    MetricFamily(
        "ragmeter_clock_skew_total", "counter",
        "Traces with a timestamp from the future, set back to when they came.",
        ("source",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_notifications_total", "counter",
        "Alert notifications by target and by how the delivery ended.",
        ("target", "outcome"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_results_exported_total", "counter",
        "Results on their way to the OTLP receiver by how they ended; all but sent were dropped.",
        ("signal", "result"), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_state_quarantined_total", "counter",
        "State files that were damaged and moved aside.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_processing_lag_seconds", "gauge",
        "Wall clock minus the event time that is processed; absent in a replay, and of workers on"
        " Kafka.",
        (), "seconds", "Agent",
    ),
    MetricFamily(
        "ragmeter_oldest_unprocessed_seconds", "gauge",
        "Age of the oldest trace that still waits; 0 when none waits; absent of workers on Kafka.",
        (), "seconds", "Agent",
    ),
    MetricFamily(
        "ragmeter_queue_depth", "gauge", "Accepted traces that wait to be scored.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_drawn_traces", "gauge",
        "Accepted traces that wait for a judge, a model or an embedding.",
        ("tier",), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_instrument_changes_total", "counter",
        "Changes of the fingerprint that a metric goes on with, also back to an earlier one.",
        ("metric", "scorer"), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_requests_total", "counter", "Attempts to call a judge by how they ended.",
        ("judge", "outcome"), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_verdicts_total", "counter",
        "Questions by how they were answered: kept (no call), shared (the call of another), asked.",
        ("judge", "source"), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_tokens_total", "counter", "Tokens of all attempts, input and output.",
        ("judge", "direction"), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_cost_usd_total", "counter",
        "Cost of all attempts by the configured prices, in US dollars.",
        ("judge",), "usd", "Judge",
    ),
    MetricFamily(
        "ragmeter_canary_judge_requests_total", "counter",
        "Attempts to call a judge for canaries, of all attempts.",
        (), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_canary_judge_tokens_total", "counter",
        "Tokens of the attempts for canaries, in and out together.",
        (), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_canary_judge_cost_usd_total", "counter",
        "Cost of the attempts for canaries by the configured prices, in US dollars.",
        (), "usd", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_up", "gauge", "1 while a judge is asked, 0 while its breaker is open.",
        ("judge",), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_in_flight", "gauge", "Calls that a judge has not answered yet.",
        ("judge",), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_in_flight_limit", "gauge",
        "Calls that may be in flight: judge.concurrency, less while the judge is overloaded.",
        ("judge",), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_sampling_scale", "gauge",
        "What budget and capacity leave of the configured sampling rate, 0 to 1.",
        ("tier", "service"), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_judge_info", "info", "Each judge as it is asked and served now.",
        (
            "judge", "model", "served", "system_fingerprint", "prompt", "prompt_hash",
            "fingerprint",
        ), "", "Judge",
    ),
    MetricFamily(
        "ragmeter_drift_statistic", "gauge",
        "Statistic of a drift detector over its threshold; 1 raises the alarm, and it stays there"
        " while the alarm stands. For latency the metric is the stage.",
        ("service", "metric", "scorer", "kind"), "", "Drift",
    ),
    MetricFamily(
        "ragmeter_drift_alarms_total", "counter", "Alarms of a drift detector that became alerts.",
        ("service", "metric", "scorer", "kind"), "", "Drift",
    ),
    MetricFamily(
        "ragmeter_drift_series_refused", "gauge",
        "Series that no detector watches because drift.max_series are watched already.",
        (), "", "Drift",
    ),
    MetricFamily(
        "ragmeter_alerts_refused", "gauge",
        "Conditions that hold at the last evaluation, and drift alarms so far, without an alert"
        " because there are too many.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_ready", "gauge", "1 when the agent is ready, 0 when /readyz says why not.",
        (), "", "Agent",
    ),
    MetricFamily(
        "ragmeter_stream_time_seconds", "gauge",
        "Event time up to which the windows have come, as Unix time; absent before the first.",
        (), "seconds", "Agent",
    ),
    MetricFamily(
        "ragmeter_alerts_firing", "gauge", "Alerts that fire now.",
        ("alertname", "severity"), "", "Agent",
    ),
    MetricFamily("ragmeter_build_info", "info", "Version of ragmeter.", ("version",), "", "Agent"),
)  # fmt: skip


def _process(name: str, text: str, labels: tuple[str, ...] = (), unit: str = "") -> MetricFamily:
    kind = "counter" if name.endswith("_total") else "gauge"
    return MetricFamily(name, kind, text, labels, unit, "Process", ours=False)  # type: ignore[arg-type]


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
