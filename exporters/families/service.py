"""Metric families of a service: quality, traffic, answer consistency and indexes.

Metric families of what is known of a service besides the scores of its traces: its indexes, and
how much its answers to one question differ.
"""

from __future__ import annotations

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import BUILTIN_SCORER
from ragmeter.exporters.exposition import MetricFamily
from ragmeter.metrics.consistency import SIMILARITIES


def quality_families(
    spec: MetricSpec,
) -> tuple[MetricFamily, MetricFamily, MetricFamily, MetricFamily, MetricFamily]:
    """Point estimate, lower bound, upper bound, effective samples of one quality metric, and the
    share of traces that have none."""
    what = spec.meaning.strip().rstrip(".")
    what = what[:1].upper() + what[1:]
    over = "over the window" if spec.kind == "ratio" else "mean over the window"
    stem = f"rag_{spec.name}"
    unit = "ratio" if spec.kind == "ratio" else spec.unit

    # a version of its own has what was not built in: a judge, a model
    version = ("fingerprint",) if set(spec.scorers) - {BUILTIN_SCORER} else ()
    labels = ("service", "scorer", *version, *spec.labels, "window")

    def family(name: str, text: str, unit: str = "") -> MetricFamily:
        return MetricFamily(name, "gauge", text, labels, unit, "Quality", segmented=True)

    return (
        family(spec.gauge, f"{what}; {over}.", unit),
        family(f"{stem}_ci_lower", f"Lower end of the 95% interval of {spec.gauge}.", unit),
        family(f"{stem}_ci_upper", f"Upper end of the 95% interval of {spec.gauge}.", unit),
        family(
            f"{stem}_effective_samples",
            f"Equally weighted traces that would carry as much evidence as {spec.gauge} has.",
        ),
        MetricFamily(
            f"{stem}_unscored_ratio",
            "gauge",
            f"Share of the traces that {spec.gauge} should cover and that got no value.",
            labels,
            "ratio",
            "Quality",
        ),
    )


_LATENCY = ("service", "stage", "quantile", "window")

LATENCY = (
    MetricFamily(
        "rag_latency_quantile_seconds", "gauge",
        "Quantile of a stage's latency over the window, within 1% of the true value.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    MetricFamily(
        "rag_latency_quantile_ci_lower_seconds", "gauge",
        "Lower end of the 95% interval of rag_latency_quantile_seconds.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    MetricFamily(
        "rag_latency_quantile_ci_upper_seconds", "gauge",
        "Upper end of the 95% interval of rag_latency_quantile_seconds.",
        _LATENCY, "seconds", "Latency", segmented=True,
    ),
    MetricFamily(
        "rag_trace_duration_seconds", "histogram",
        "Whole duration of a trace; buckets carry a trace id as exemplar (OpenMetrics).",
        ("service",), "seconds", "Latency",
    ),
)  # fmt: skip

TRAFFIC = (
    MetricFamily(
        "rag_traces_total", "counter", "Traces by how they ended: ok, error or timeout.",
        ("service", "status"), "", "Traffic",
    ),
    MetricFamily(
        "rag_canaries_total", "counter",
        "Canaries by how they ended: ok, error or timeout. They are no part of any other count.",
        ("service", "status"), "", "Traffic",
    ),
    MetricFamily(
        "rag_tokens_total", "counter", "Tokens that the traces report, input and output.",
        ("service", "direction"), "", "Traffic",
    ),
    MetricFamily(
        "rag_cost_usd_total", "counter", "Cost that the traces report, in US dollars.",
        ("service",), "usd", "Traffic",
    ),
    MetricFamily(
        "rag_slo_events_total", "counter",
        "Events that count for an objective, weighted by the inverse sampling probability.",
        ("service", "slo"), "", "Objectives",
    ),
    MetricFamily(
        "rag_slo_bad_events_total", "counter",
        "Events that broke an objective, weighted by the inverse sampling probability.",
        ("service", "slo"), "", "Objectives",
    ),
    MetricFamily(
        "rag_slo_bad_events_squared_total", "counter",
        "Squared weights of events that broke an objective: for their effective number.",
        ("service", "slo"), "", "Objectives",
    ),
)  # fmt: skip


_INDEX = ("service", "index", "index_version")

INDEXING = (
    MetricFamily(
        "rag_index_info", "info",
        "Chunker and embedding model that an index version was made with; two series of one version"
        " mean that its parts were made in different ways.",
        (*_INDEX, "chunker", "embedding_model"), "", "Indexing",
    ),
    MetricFamily(
        "rag_index_last_event_timestamp_seconds", "gauge",
        "Time of the latest event of an index version, as Unix time; the version in use is the one"
        " with the latest.",
        _INDEX, "seconds", "Indexing",
    ),
    MetricFamily(
        "rag_index_documents", "gauge", "Documents that were processed for an index version.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "rag_index_no_chunk_ratio", "gauge",
        "Share of the documents that gave no chunk: nothing of them can be retrieved.",
        _INDEX, "ratio", "Indexing",
    ),
    MetricFamily(
        "rag_index_chunks", "gauge", "Chunks that an indexing job tried to embed.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "rag_index_skipped_ratio", "gauge",
        "Share of the chunks that were tried and not embedded.",
        _INDEX, "ratio", "Indexing",
    ),
    MetricFamily(
        "rag_index_skipped_chunks", "gauge",
        "Chunks that were not embedded, by the reason that the job gave; not_reported: none.",
        (*_INDEX, "reason"), "", "Indexing",
    ),
    MetricFamily(
        "rag_index_chunk_tokens_min", "gauge", "Fewest tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "rag_index_chunk_tokens_mean", "gauge", "Mean tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "rag_index_chunk_tokens_max", "gauge", "Most tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "rag_index_chunk_tokens_p95", "gauge",
        "95th percentile of the tokens of a chunk, within 1% of the true value.",
        _INDEX, "", "Indexing",
    ),
    MetricFamily(
        "ragmeter_index_events_total", "counter",
        "Index events by what became of them: counted, duplicate (the id was known), old_version"
        " (later versions have all the places).",
        ("outcome",), "", "Indexing",
    ),
)  # fmt: skip

_WINDOW = ("service", "window")
_SPOKEN = {
    "rouge1": "ROUGE-1 F",
    "rouge2": "ROUGE-2 F",
    "rouge_l": "ROUGE-L F",
    "embedding": "Cosine (0 to 1) of the embeddings",
}


def _similarity(name: str) -> tuple[MetricFamily, ...]:
    stem, spoken = f"rag_consistency_{name}", f"{_SPOKEN[name]} of every two answers"

    def family(suffix: str, text: str) -> MetricFamily:
        return MetricFamily(f"{stem}_{suffix}", "gauge", text, _WINDOW, "", "Consistency")

    return (
        family("mean", f"{spoken} to one question; mean over the questions asked again."),
        family("ci_lower", f"Lower end of the 95% interval of {stem}_mean."),
        family("ci_upper", f"Upper end of the 95% interval of {stem}_mean."),
        family("variance", f"Variance of the {spoken} to one question; mean over questions."),
        family(
            "coefficient_of_variation",
            f"Standard deviation by mean of the {spoken} to one question; mean over questions.",
        ),
    )


CONSISTENCY = (
    MetricFamily(
        "rag_consistency_queries", "gauge",
        "Remembered questions with an answer in the window: single_answer (nothing to compare),"
        " compared (several answers).",
        (*_WINDOW, "state"), "", "Consistency",
    ),
    *(family for name in SIMILARITIES for family in _similarity(name)),
    MetricFamily(
        "ragmeter_consistency_answers_total", "counter",
        "Answers by what became of them where answers are compared: kept, enough (the question had"
        " some within the minute), sampled_out (its question is not remembered), no_query,"
        " no_answer, late.",
        ("outcome",), "", "Consistency",
    ),
    MetricFamily(
        "ragmeter_consistency_embeddings_total", "counter",
        "Remembered answers that were to be embedded, by outcome: embedded, timeout, unavailable"
        " (no connection, 429, 5xx), refused (the text, the key or the model), malformed (no"
        " embeddings, or one for all texts), shed, not_configured, internal_error.",
        ("outcome",), "", "Consistency",
    ),
    MetricFamily(
        "ragmeter_embeddings_up", "gauge",
        "1 while the embeddings server of consistency answers, 0 while its breaker is open; absent"
        " without one.",
        (), "", "Consistency",
    ),
)  # fmt: skip
