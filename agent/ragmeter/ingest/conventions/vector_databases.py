"""Clients of vector databases, as OpenLLMetry and OpenLIT trace them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import (
    MAX_DOCUMENTS,
    read_document,
)
from ragmeter.ingest.conventions.key_tables import add_tag
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import (
    find_question,
)
from ragmeter.ingest.conventions.values import (
    first_text,
    key_list,
    key_set,
    parse_count,
    parse_json_or_literal,
    parse_literal,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

_RESULTS = {"db.query.result": "db.query.result.", "db.search.result": "db.search.result."}
_OPERATION = ("db.operation", "db.operation.name")
_COLLECTION = ("db.collection.name", "db.milvus.search.collection_name")


def matches_vector_db(span: Span) -> bool:
    """Return whether a span is of a vector database or has its result events."""
    attributes = span.attributes
    system = attributes.get("db.system") or attributes.get("db.system.name")
    if isinstance(system, str) and system.lower() in key_set("vector_databases"):
        return True
    return bool(span.events) and any(event.name in _RESULTS for event in span.events)


def read_vector_db(span: Span, full: bool = True) -> SpanContent:
    """Read a span of a vector database; always whole, as documents are all that it holds."""
    attributes = span.attributes
    operation = (first_text(attributes, _OPERATION) or "").lower()
    content = SpanContent(role=SpanRole.VECTOR_DB, convention="vector_db")
    if operation.startswith(key_list("writing_operations")):
        return content  # index building
    if any(word in operation for word in key_list("administering_operations")):
        return SpanContent(convention="vector_db")
    add_tag(content, "collection", first_text(attributes, _COLLECTION))
    content.query, content.query_gap = find_question(attributes.get("db.marqo.search.query"))
    if content.query is None:
        content.query = _openlit_query(attributes.get("db.query.text"))
    kind = _milvus_score_kind(attributes)
    results = [event for event in span.events if event.name in _RESULTS][:MAX_DOCUMENTS]
    documents = [_document(event.attributes, _RESULTS[event.name], kind) for event in results]
    if documents:
        content.documents = documents
        if _only_first_hits(attributes, len(documents)):
            content.documents_gap = Reason.PASSAGES_TRUNCATED
    elif parse_count(attributes.get("db.milvus.search.result_count")) == 0:
        content.documents = []
    return content


def _document(event: Mapping[str, Any], prefix: str, kind: str) -> RetrievedDocument:
    canonical = {
        key.removeprefix(prefix): value for key, value in event.items() if key.startswith(prefix)
    }
    if not canonical:  # the hit's own fields (Milvus query, Marqo)
        document = read_document({k: v for k, v in event.items() if k != "vector"})
        return document if document is not None else RetrievedDocument(gap=Reason.PASSAGES_ID_ONLY)
    metadata = _object(canonical.get("metadata"))
    entity = _object(canonical.get("entity"))
    inner = read_document({**entity, "metadata": metadata}) or RetrievedDocument()
    text = scalar_text(canonical.get("document")) or inner.text
    score = parse_number(canonical.get("score"))
    distance = parse_number(canonical.get("distance"))
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
        gap=None if text else Reason.PASSAGES_ID_ONLY,
    )


def _object(value: Any) -> dict[str, Any]:
    value = parse_json_or_literal(value)
    return dict(value) if isinstance(value, dict) else {}


def _milvus_score_kind(attributes: Mapping[str, Any]) -> str:
    """Return the kind of Milvus's `distance`, "" if no search parameter names the metric."""
    parameters = _object(attributes.get("db.milvus.search.search_params"))
    metric = str(parameters.get("metric_type") or "").lower()
    if metric.startswith(key_list("milvus_similarities")):
        return "similarity"
    return "distance" if metric.startswith(key_list("milvus_distances")) else ""


def _only_first_hits(attributes: Mapping[str, Any], events: int) -> bool:
    wanted = parse_count(attributes.get("db.chroma.query.n_results"))
    queries = parse_count(attributes.get("db.chroma.query.texts_count")) or parse_count(
        attributes.get("db.chroma.query.embeddings_count")
    )
    return wanted is not None and wanted > 1 and events == (queries or 1)


def _openlit_query(value: Any) -> str | None:
    """Return the text of OpenLIT's `texts=['...']`; embeddings, ids and filters are no question."""
    if not isinstance(value, str) or not value.startswith("texts="):
        return None
    texts = parse_literal(value[len("texts=") :])
    if isinstance(texts, str):
        return scalar_text(texts)
    return next((text for x in texts if (text := scalar_text(x))), None) if texts else None
