"""Metric families of traffic: latency, how traces ended, tokens, cost and objectives."""

from __future__ import annotations

from exporters.exposition import Family

__all__ = ["LATENCY", "TRAFFIC"]

_LATENCY = ("service", "stage", "quantile", "window")

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
