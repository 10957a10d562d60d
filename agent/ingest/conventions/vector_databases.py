"""Vector databases as OpenLLMetry and OpenLIT trace them: `db.system` attributes and result events.

Source: traceloop/openllmetry, `semconv_ai` and the instrumentations of chromadb, pinecone, milvus,
marqo, qdrant, weaviate, lancedb; openlit/openlit `instrumentation/chroma/utils.py`. Traps:
- The query is a vector: no text, but with Marqo (`db.marqo.search.query`) and OpenLIT
  (`db.query.text` = `texts=['...']`).
- Chroma: up to 0.62 an event holds the FIRST hit of each query only, so one query gives one event
  whatever `n_results` says: the others are lost, and the list is marked as cut.
- Pinecone has no text but in the metadata, which is Python's text form of a dict.
- Milvus calls every score `distance`: with COSINE and IP higher is better. The kind is known only
  where the search parameters name the metric.
- Milvus `query` and Marqo write the hit's own fields as attributes of the event.
- A database span below a framework's retriever has the same documents again, with ids and scores.
- Adding documents is index building and no request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS, read_document
from ragmeter.ingest.conventions.key_tables import add_tag
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import find_question
from ragmeter.ingest.conventions.values import (
    parse_count,
    parse_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_SYSTEMS = frozenset(
    {
        "chroma",
        "chromadb",
        "pinecone",
        "qdrant",
        "milvus",
        "weaviate",
        "lancedb",
        "marqo",
        "astra",
        "pgvector",
        "pg_vector",
        "opensearch_vector",
        "vespa",
        "turbopuffer",
    }
)
_RESULTS = {"db.query.result": "db.query.result.", "db.search.result": "db.search.result."}
# beginnings of operation names that write; all others of a vector database read
_WRITES = (
    "add",
    "insert",
    "upsert",
    "update",
    "delete",
    "create",
    "modify",
    "upload",
    "replace",
    "drop",
    "put",
)
# "get_collection" looks for nothing
_ADMINISTERS = ("collection", "index", "schema", "count", "describe", "flush", "list", "andmodify")
_SIMILARITIES = ("cosine", "ip", "dot", "bm25")
_DISTANCES = ("l2", "euclid", "hamming", "jaccard", "manhattan")


def matches_vector_db(span: Span) -> bool:
    attributes = span.attributes
    system = attributes.get("db.system") or attributes.get("db.system.name")
    if isinstance(system, str) and system.lower() in _SYSTEMS:
        return True
    return bool(span.events) and any(event.name in _RESULTS for event in span.events)


def read_vector_db(span: Span, content: bool = True) -> SpanContent:
    """Always whole: its documents are all that it is about."""
    attributes = span.attributes
    operation = _first(attributes, ("db.operation", "db.operation.name")).lower()
    reading = SpanContent(role=SpanRole.VECTOR_DB, convention="vector_db")
    if operation.startswith(_WRITES):
        return reading  # index building, as the operation's name tells the tree
    if any(word in operation for word in _ADMINISTERS):
        return SpanContent(convention="vector_db")
    add_tag(
        reading,
        "collection",
        _first(attributes, ("db.collection.name", "db.milvus.search.collection_name")),
    )
    reading.query, reading.query_gap = find_question(attributes.get("db.marqo.search.query"))
    if reading.query is None:
        reading.query = _openlit_query(attributes.get("db.query.text"))
    kind = _kind(attributes)
    found: list[RetrievedDocument] = []
    for event in span.events:
        if event.name in _RESULTS and len(found) < MAX_DOCUMENTS:
            found.append(_document(event.attributes, _RESULTS[event.name], kind))
    if found:
        reading.documents = found
        if _only_first_hits(attributes, len(found)):
            reading.documents_gap = ContentGap.PASSAGES_TRUNCATED
    elif parse_count(attributes.get("db.milvus.search.result_count")) == 0:
        reading.documents = []
    return reading


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((text for key in keys if (text := scalar_text(attributes.get(key)))), "")


def _document(event: Mapping[str, Any], prefix: str, kind: str) -> RetrievedDocument:
    canonical = {
        key.removeprefix(prefix): value for key, value in event.items() if key.startswith(prefix)
    }
    if not canonical:  # the hit's own fields (Milvus query, Marqo)
        one = read_document({k: v for k, v in event.items() if k != "vector"})
        return one if one is not None else RetrievedDocument(gap=ContentGap.ID_ONLY)
    metadata = _object(canonical.get("metadata"))
    entity = _object(canonical.get("entity"))
    inner = read_document({**entity, "metadata": metadata}) or RetrievedDocument()
    text = scalar_text(canonical.get("document")) or inner.text
    score, distance = parse_number(canonical.get("score")), parse_number(canonical.get("distance"))
    if distance is not None:
        score_kind = kind if prefix == _RESULTS["db.search.result"] else "distance"
    else:
        score_kind = "" if score is None else "similarity"
    return RetrievedDocument(
        id=scalar_text(canonical.get("id")) or inner.id,
        text=text,
        score=score if distance is None else distance,
        score_kind=score_kind,
        metadata=inner.metadata,
        gap=None if text else ContentGap.ID_ONLY,
    )


def _object(value: Any) -> dict[str, Any]:
    value = parse_nested_json(value)
    if isinstance(value, str):
        value = parse_literal(value)
    return dict(value) if isinstance(value, dict) else {}


def _kind(attributes: Mapping[str, Any]) -> str:
    """Of what Milvus calls a distance: the metric is a search parameter, or nobody knows."""
    named = _object(attributes.get("db.milvus.search.search_params")).get("metric_type")
    metric = str(named or "").lower()
    if metric.startswith(_SIMILARITIES):
        return "similarity"
    return "distance" if metric.startswith(_DISTANCES) else ""


def _only_first_hits(attributes: Mapping[str, Any], events: int) -> bool:
    wanted = parse_count(attributes.get("db.chroma.query.n_results"))
    queries = parse_count(attributes.get("db.chroma.query.texts_count")) or parse_count(
        attributes.get("db.chroma.query.embeddings_count")
    )
    return wanted is not None and wanted > 1 and events == (queries or 1)


def _openlit_query(value: Any) -> str | None:
    """OpenLIT's `texts=['...']`; embeddings, ids and filters are no question."""
    if not isinstance(value, str) or not value.startswith("texts="):
        return None
    texts = parse_literal(value[len("texts=") :])
    if isinstance(texts, str):
        return scalar_text(texts)
    return next((text for x in texts if (text := scalar_text(x))), None) if texts else None
