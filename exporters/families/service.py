"""Metric families of what is known of a service besides the scores of its traces: its indexes, and
how much its answers to one question differ."""

from __future__ import annotations

from agent.metrics.consistency import SIMILARITIES
from exporters.exposition import Family

__all__ = ["CONSISTENCY", "INDEXING"]

_INDEX = ("service", "index", "index_version")

INDEXING = (
    Family(
        "rag_index_info", "info",
        "Chunker and embedding model that an index version was made with; two series of one version"
        " mean that its parts were made in different ways.",
        (*_INDEX, "chunker", "embedding_model"), "", "Indexing",
    ),
    Family(
        "rag_index_last_event_timestamp_seconds", "gauge",
        "Time of the latest event of an index version, as Unix time; the version in use is the one"
        " with the latest.",
        _INDEX, "seconds", "Indexing",
    ),
    Family(
        "rag_index_documents", "gauge", "Documents that were processed for an index version.",
        _INDEX, "", "Indexing",
    ),
    Family(
        "rag_index_no_chunk_ratio", "gauge",
        "Share of the documents that gave no chunk: nothing of them can be retrieved.",
        _INDEX, "ratio", "Indexing",
    ),
    Family(
        "rag_index_chunks", "gauge", "Chunks that an indexing job tried to embed.",
        _INDEX, "", "Indexing",
    ),
    Family(
        "rag_index_skipped_ratio", "gauge",
        "Share of the chunks that were tried and not embedded.",
        _INDEX, "ratio", "Indexing",
    ),
    Family(
        "rag_index_skipped_chunks", "gauge",
        "Chunks that were not embedded, by the reason that the job gave; not_reported: none.",
        (*_INDEX, "reason"), "", "Indexing",
    ),
    Family(
        "rag_index_chunk_tokens_min", "gauge", "Fewest tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    Family(
        "rag_index_chunk_tokens_mean", "gauge", "Mean tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    Family(
        "rag_index_chunk_tokens_max", "gauge", "Most tokens of a chunk.",
        _INDEX, "", "Indexing",
    ),
    Family(
        "rag_index_chunk_tokens_p95", "gauge",
        "95th percentile of the tokens of a chunk, within 1% of the true value.",
        _INDEX, "", "Indexing",
    ),
    Family(
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


def _similarity(name: str) -> tuple[Family, ...]:
    stem, spoken = f"rag_consistency_{name}", f"{_SPOKEN[name]} of every two answers"

    def family(suffix: str, text: str) -> Family:
        return Family(f"{stem}_{suffix}", "gauge", text, _WINDOW, "", "Consistency")

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
    Family(
        "rag_consistency_queries", "gauge",
        "Remembered questions with an answer in the window: single_answer (nothing to compare),"
        " compared (several answers).",
        (*_WINDOW, "state"), "", "Consistency",
    ),
    *(family for name in SIMILARITIES for family in _similarity(name)),
    Family(
        "ragmeter_consistency_answers_total", "counter",
        "Answers by what became of them where answers are compared: kept, enough (the question had"
        " some within the minute), sampled_out (its question is not remembered), no_query,"
        " no_answer, late.",
        ("outcome",), "", "Consistency",
    ),
    Family(
        "ragmeter_consistency_embeddings_total", "counter",
        "Remembered answers that were to be embedded, by outcome: embedded, timeout, unavailable"
        " (no connection, 429, 5xx), refused (the text, the key or the model), malformed (no"
        " embeddings, or one for all texts), shed, not_configured, internal_error.",
        ("outcome",), "", "Consistency",
    ),
    Family(
        "ragmeter_embeddings_up", "gauge",
        "1 while the embeddings server of consistency answers, 0 while its breaker is open; absent"
        " without one.",
        (), "", "Consistency",
    ),
)  # fmt: skip
