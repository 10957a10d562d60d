"""Metric families of what is known of a service besides its traces' scores: its indexes."""

from __future__ import annotations

from exporters.exposition import Family

__all__ = ["INDEXING"]

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
