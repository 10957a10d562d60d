"""OpenLLMetry (Traceloop), and the vector databases as it and OpenLIT trace them.

`key_tables.yaml` has the sources of both and what to beware of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import (
    MAX_DOCUMENTS,
    read_document,
    read_documents,
    read_tool_documents,
)
from ragmeter.ingest.conventions.key_tables import add_tag, key_table, missing_documents_gap
from ragmeter.ingest.conventions.otel_genai import fill_usage
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    defer_content,
    first_event_time,
    has_texts,
)
from ragmeter.ingest.conventions.texts import (
    find_answer,
    find_question,
    last_text_of,
    read_flattened_messages,
)
from ragmeter.ingest.conventions.values import (
    first_text,
    has_flattened_items,
    is_hidden,
    is_truncated,
    key_list,
    key_set,
    parse_count,
    parse_json_or_literal,
    parse_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_KIND = "traceloop.span.kind"
_ENTITY = "traceloop.entity."
_ASSOCIATION = "traceloop.association.properties."
_MAX_TAGS = 32
_SUFFIX = re.compile(r"\.(?:task|workflow|agent|tool|chat|completion|embeddings)$", re.IGNORECASE)
_RETRIEVES = re.compile(r"_?(?:retrieve|retrieval)(?![a-z]*_chain)(?:_|$|[A-Z])")
_NAMES = (
    (re.compile(r"Embeddings?$"), SpanRole.EMBEDDING),
    (re.compile(r"Retriever$"), SpanRole.RETRIEVER),
    (
        re.compile(r"(?:Rerank(?:er)?|NodePostprocessor|Postprocessor)$|^rerank(?:_|$)"),
        SpanRole.RERANKER,
    ),
)


def read_openllmetry(span: Span, full: bool = True) -> SpanContent:
    """Read a span of OpenLLMetry."""
    attributes = span.attributes
    content = SpanContent(convention="openllmetry")
    output = attributes.get(_ENTITY + "output")
    documents: list[RetrievedDocument] | None = None
    content.role = _role(span)
    # a user may name a task so: `retrieve_documents`, but not `retrieval_chain`
    may_retrieve = attributes.get(_KIND) == "task" and _RETRIEVES.match(_entity(span)) is not None
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER) or may_retrieve:
        documents = read_documents(_outputs(output))
        if content.role is SpanRole.CHAIN and has_texts(documents):
            content.role = SpanRole.RETRIEVER
    content.session = scalar_text(attributes.get(_ASSOCIATION + "session_id"))
    content.user = scalar_text(attributes.get(_ASSOCIATION + "user_id"))
    content.prompt_version = scalar_text(attributes.get("traceloop.prompt.version"))
    content.tags = _tags(span)
    if attributes.get("gen_ai.task.status") == "failure":
        content.failed = True
    if content.role is SpanRole.EMBEDDING:
        return content
    if content.role is SpanRole.LLM:
        fill_usage(content, attributes)
        content.first_token_ns = first_event_time(span, "llm.content.completion.chunk")
        if full or not defer_content(content):
            _fill_call(span, content)
        return content
    if not full and defer_content(content):
        return content
    content.query, content.query_gap = find_question(attributes.get(_ENTITY + "input"))
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        content.documents = documents
        content.documents_gap = missing_documents_gap(documents, output)
    elif content.role is SpanRole.TOOL:
        content.documents = read_tool_documents(_outputs(output))
    else:
        content.answer, content.answer_gap = find_answer(output)
    return content


def _entity(span: Span) -> str:
    name = scalar_text(span.attributes.get(_ENTITY + "name")) or span.name
    return _SUFFIX.sub("", name)


def _role(span: Span) -> SpanRole:
    attributes, roles = span.attributes, key_table("openllmetry").roles
    for key in ("gen_ai.operation.name", "llm.request.type"):
        operation = attributes.get(key)
        if isinstance(operation, str) and operation.lower() in roles:
            return roles[operation.lower()]
    name = _entity(span)
    for pattern, role in _NAMES:
        if pattern.search(name):
            return role
    kind = attributes.get(_KIND)
    if kind == "tool":
        return SpanRole.TOOL
    if isinstance(kind, str) and kind:
        return SpanRole.CHAIN
    if has_flattened_items(attributes, "gen_ai.prompt") or has_flattened_items(
        attributes, "gen_ai.completion"
    ):
        return SpanRole.LLM
    return SpanRole.OTHER


def _outputs(value: Any) -> Any:
    opened = parse_nested_json(value)
    if isinstance(opened, dict) and "documents" not in opened:
        for key in ("outputs", "output"):
            if key in opened:
                return opened[key]
    return opened


def _fill_call(span: Span, content: SpanContent) -> None:
    attributes = span.attributes
    prompts = read_flattened_messages(attributes, "gen_ai.prompt")
    replies = read_flattened_messages(attributes, "gen_ai.completion")
    content.query = last_text_of(prompts, "user")
    if content.query is None and not prompts:
        content.query, content.query_gap = find_question(attributes.get(_ENTITY + "input"))
    text = last_text_of(replies, "assistant") or next(
        (reply.text for reply in replies if reply.text), None
    )
    content.calls_tools = text is None and any(message.tools for message in replies)
    if text is None and not replies:
        content.answer, content.answer_gap = find_answer(attributes.get(_ENTITY + "output"))
    else:
        content.answer = text
    if is_hidden(content.query):
        content.query, content.query_gap = None, ContentGap.HIDDEN
    if is_hidden(content.answer):
        content.answer, content.answer_gap = None, ContentGap.HIDDEN
    if content.answer is not None and is_truncated(content.answer):
        content.answer_gap = ContentGap.ANSWER_TRUNCATED


def _tags(span: Span) -> dict[str, str]:
    tags: dict[str, str] = {}
    for key, value in span.attributes.items():
        if key.startswith(_ASSOCIATION) and len(tags) < _MAX_TAGS:
            name = key[len(_ASSOCIATION) :]
            text = scalar_text(value)
            if name not in ("session_id", "user_id") and text and not name.startswith("ls_"):
                tags[name] = text
    return tags


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
            content.documents_gap = ContentGap.PASSAGES_TRUNCATED
    elif parse_count(attributes.get("db.milvus.search.result_count")) == 0:
        content.documents = []
    return content


def _document(event: Mapping[str, Any], prefix: str, kind: str) -> RetrievedDocument:
    canonical = {
        key.removeprefix(prefix): value for key, value in event.items() if key.startswith(prefix)
    }
    if not canonical:  # the hit's own fields (Milvus query, Marqo)
        document = read_document({k: v for k, v in event.items() if k != "vector"})
        return document if document is not None else RetrievedDocument(gap=ContentGap.ID_ONLY)
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
