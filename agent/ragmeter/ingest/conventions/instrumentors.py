"""The libraries that instrument others: OpenInference (Arize) and OpenLLMetry (Traceloop).

Vector databases are here too, as OpenLLMetry and OpenLIT trace them. `key_tables.yaml` has the
sources and what to beware of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import (
    MAX_DOCUMENTS,
    read_document,
    read_documents,
    read_flattened_documents,
    read_metadata,
    read_tool_documents,
)
from ragmeter.ingest.conventions.key_tables import add_tag, key_table, missing_documents_gap
from ragmeter.ingest.conventions.otel_genai import fill_usage
from ragmeter.ingest.conventions.span_content import (
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
    flattened_items,
    has_flattened_items,
    is_hidden,
    is_truncated,
    key_list,
    key_set,
    looks_like_json,
    parse_count,
    parse_json_or_literal,
    parse_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import KIND, AttributeValue, Span
from ragmeter.reasons import Reason

_MODEL = ("llm.response.model_name", "llm.model_name", "llm.request.model_name")
_RETRIEVED, _RERANKED = "retrieval.documents", "reranker.output_documents"


def preview_wrapper(span: Span) -> SpanContent | None:
    """Read a span that only wraps others without its content, None for any other span.

    LangChain sends ten of them a request, each with all that is passed through it, and the topmost
    has what counts.
    """
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() not in ("CHAIN", "PROMPT"):
        return None
    if has_flattened_items(span.attributes, _RETRIEVED):
        return None
    content = _bare_content(span, SpanRole.CHAIN)
    content.light = True
    return content


def _bare_content(span: Span, role: SpanRole) -> SpanContent:
    content = SpanContent(role=role, convention="openinference")
    content.session = scalar_text(span.attributes.get("session.id"))
    content.user = scalar_text(span.attributes.get("user.id"))
    return content


def read_openinference(span: Span, full: bool = True) -> SpanContent:
    """Read a span of OpenInference."""
    attributes = span.attributes
    content = _bare_content(span, _openinference_role(span))
    content.tags = _metadata_tags(attributes.get("metadata"), attributes.get("tag.tags"))
    content.prompt_version = scalar_text(attributes.get("llm.prompt_template.version"))
    if full or has_flattened_items(attributes, _RETRIEVED) or not defer_content(content):
        _fill_content(span, content)
    if content.role is not SpanRole.EMBEDDING:
        content.model = first_text(attributes, _MODEL)
        content.input_tokens = parse_count(attributes.get("llm.token_count.prompt"))
        content.output_tokens = parse_count(attributes.get("llm.token_count.completion"))
        content.cost_usd = parse_number(attributes.get("llm.cost.total"))
    content.first_token_ns = first_event_time(span, "First Token Stream Event")
    return content


def _openinference_role(span: Span) -> SpanRole:
    attributes = span.attributes
    kind = attributes.get(KIND)
    roles = key_table("openinference").roles
    role = roles.get(kind.strip().lower()) if isinstance(kind, str) else None
    if role is SpanRole.LLM and _builds_prompt(span):
        return SpanRole.CHAIN
    if role is not None:
        return role
    for prefix, guess in (
        (_RERANKED, SpanRole.RERANKER),
        (_RETRIEVED, SpanRole.RETRIEVER),
        ("llm.output_messages", SpanRole.LLM),
        ("llm.input_messages", SpanRole.LLM),
        ("llm.token_count", SpanRole.LLM),
        ("embedding.embeddings", SpanRole.EMBEDDING),
    ):
        if has_flattened_items(attributes, prefix):
            return guess
    return SpanRole.OTHER


def _builds_prompt(span: Span) -> bool:
    """Return whether this is a component of Haystack that has the kind LLM for want of a better."""
    if not any(name in span.scope or name in span.name for name in ("haystack", "PromptBuilder")):
        return False
    attributes = span.attributes
    return not any(
        key.startswith(("llm.model_name", "llm.token_count.", "llm.output_messages."))
        for key in attributes
    )


def _fill_content(span: Span, content: SpanContent) -> None:
    attributes = span.attributes
    role = content.role
    input_value, output_value = attributes.get("input.value"), attributes.get("output.value")
    if role is SpanRole.EMBEDDING:
        return
    if role is SpanRole.LLM:
        _fill_openinference_call(span, content)
        return
    if role is SpanRole.RERANKER:
        content.query, content.query_gap = find_question(attributes.get("reranker.query"))
    if content.query is None:
        content.query, content.query_gap = find_question(input_value)
    if content.query is None and span.dropped and content.query_gap is None:
        content.query_gap = Reason.QUERY_TRUNCATED
    if role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        _fill_retrieval(span, content, output_value)
    elif role is SpanRole.TOOL:
        content.documents = read_tool_documents(output_value)
    else:
        if content.query is None:
            content.query, content.query_gap = _crew_question(attributes)
        content.answer, content.answer_gap = find_answer(output_value)
        if has_flattened_items(attributes, _RETRIEVED):
            content.documents, cut = read_flattened_documents(attributes, _RETRIEVED)
            content.documents_gap = Reason.PASSAGES_TRUNCATED if cut else None


def _crew_question(
    attributes: Mapping[str, AttributeValue],
) -> tuple[str | None, Reason | None]:
    """Return what a crew of CrewAI was asked: its inputs, else the description of its only task."""
    asked = find_question(attributes.get("crew_inputs"))
    tasks = parse_nested_json(attributes.get("crew_tasks")) if asked == (None, None) else None
    if isinstance(tasks, list) and len(tasks) == 1 and isinstance(tasks[0], dict):
        return find_question(tasks[0].get("description"))
    return asked


def _fill_openinference_call(span: Span, content: SpanContent) -> None:
    """Read a model call: its messages, else `input.value` and `output.value`."""
    attributes = span.attributes
    prompts = read_flattened_messages(attributes, "llm.input_messages", "message.")
    replies = read_flattened_messages(attributes, "llm.output_messages", "message.")
    content.query = last_text_of(prompts, "user")
    if is_hidden(content.query):
        content.query, content.query_gap = None, Reason.CONTENT_HIDDEN
    elif content.query is None:
        content.query, content.query_gap = find_question(attributes.get("input.value"))
    choices = flattened_items(attributes, "llm.choices")
    completions = (scalar_text(choice.get("completion.text")) for _, choice in choices)
    text = (
        last_text_of(replies, "assistant")
        or last_text_of(replies, "")  # a reply may have no role
        or next((text for text in completions if text is not None), None)
    )
    content.calls_tools = text is None and any(message.tools for message in replies)
    if is_hidden(text):
        content.answer_gap = Reason.CONTENT_HIDDEN
    elif text is not None:
        content.answer = text
        if looks_like_json(text):  # what a user reads is at its key `answer`
            answer, gap = find_answer(text)
            if answer is not None:
                content.answer, content.answer_gap = answer, gap
    elif not content.calls_tools:
        content.answer, content.answer_gap = find_answer(attributes.get("output.value"))
    variables = parse_nested_json(attributes.get("llm.prompt_template.variables"))
    if isinstance(variables, dict):
        for key in ("context", "context_str", "documents"):
            if content.context is None and isinstance(variables.get(key), str):
                content.context = scalar_text(variables[key])


def _fill_retrieval(span: Span, content: SpanContent, output_value: AttributeValue) -> None:
    prefix = _RERANKED if content.role is SpanRole.RERANKER else _RETRIEVED
    documents, cut = read_flattened_documents(span.attributes, prefix)
    if documents is None and content.role is SpanRole.RERANKER:
        documents, cut = read_flattened_documents(span.attributes, _RETRIEVED)
    is_text = isinstance(output_value, str) and not looks_like_json(output_value)
    other = None if is_text or is_hidden(output_value) else read_documents(output_value)
    if documents is None:
        documents = other
    elif other is not None and len(other) == len(documents):
        for document, same in zip(documents, other, strict=True):
            if document.may_be(same):  # the same position, and the texts do not differ
                document.fill_from(same, text=document.gap is not Reason.CONTENT_HIDDEN)
    content.documents = documents
    if cut or (span.dropped and not documents):
        content.documents_gap = Reason.PASSAGES_TRUNCATED
    elif documents is None:
        content.documents_gap = missing_documents_gap(documents, output_value)
    if is_text and content.role is SpanRole.RETRIEVER:
        # the one span of Bedrock's RetrieveAndGenerate
        content.answer, content.answer_gap = find_answer(output_value)


def _metadata_tags(metadata: AttributeValue, names: AttributeValue) -> dict[str, str]:
    """Return the application's own metadata as tags, without what LangChain adds."""
    tags = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in read_metadata(metadata).items()
        if not key.startswith(("ls_", "lc_", "langgraph_", "checkpoint_"))
    }
    for name in names[:16] if isinstance(names, list) else ():
        if isinstance(name, str) and name:
            tags.setdefault(f"tag.{name[:64]}", "true")
    return tags


_TRACELOOP_KIND = "traceloop.span.kind"
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
    content.role = _openllmetry_role(span)
    # a user may name a task so: `retrieve_documents`, but not `retrieval_chain`
    may_retrieve = (
        attributes.get(_TRACELOOP_KIND) == "task" and _RETRIEVES.match(_entity(span)) is not None
    )
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER) or may_retrieve:
        documents = read_documents(_outputs(output))
        if content.role is SpanRole.CHAIN and has_texts(documents):
            content.role = SpanRole.RETRIEVER
    content.session = scalar_text(attributes.get(_ASSOCIATION + "session_id"))
    content.user = scalar_text(attributes.get(_ASSOCIATION + "user_id"))
    content.prompt_version = scalar_text(attributes.get("traceloop.prompt.version"))
    content.tags = _association_tags(span)
    if attributes.get("gen_ai.task.status") == "failure":
        content.failed = True
    if content.role is SpanRole.EMBEDDING:
        return content
    if content.role is SpanRole.LLM:
        fill_usage(content, attributes)
        content.first_token_ns = first_event_time(span, "llm.content.completion.chunk")
        if full or not defer_content(content):
            _fill_openllmetry_call(span, content)
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


def _openllmetry_role(span: Span) -> SpanRole:
    attributes = span.attributes
    roles = key_table("openllmetry").roles
    for key in ("gen_ai.operation.name", "llm.request.type"):
        operation = attributes.get(key)
        if isinstance(operation, str) and operation.lower() in roles:
            return roles[operation.lower()]
    name = _entity(span)
    for pattern, role in _NAMES:
        if pattern.search(name):
            return role
    kind = attributes.get(_TRACELOOP_KIND)
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


def _fill_openllmetry_call(span: Span, content: SpanContent) -> None:
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
        content.query, content.query_gap = None, Reason.CONTENT_HIDDEN
    if is_hidden(content.answer):
        content.answer, content.answer_gap = None, Reason.CONTENT_HIDDEN
    if content.answer is not None and is_truncated(content.answer):
        content.answer_gap = Reason.ANSWER_TRUNCATED


def _association_tags(span: Span) -> dict[str, str]:
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
