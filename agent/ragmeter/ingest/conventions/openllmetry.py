"""OpenLLMetry (Traceloop); `key_tables.yaml` has the sources and what to beware of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import (
    read_documents,
    read_tool_documents,
)
from ragmeter.ingest.conventions.key_tables import (
    RETRIEVER_NAME,
    first_value,
    key_table,
    missing_documents_gap,
)
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
    reply_of,
)
from ragmeter.ingest.conventions.values import (
    flattened_items,
    has_flattened_items,
    is_hidden,
    is_truncated,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import AttributeValue, Span
from ragmeter.reasons import Reason

_TRACELOOP_KIND = "traceloop.span.kind"
_ENTITY = "traceloop.entity."
_ASSOCIATION = "traceloop.association.properties."
_RANKED = re.compile(r"Doc (\d{1,4}), Score: ([\d.e-]+)")
_MAX_RANKED = 100  # characters of such a line
_MAX_TAGS = 32
_MAX_NAME = 200  # characters of a task's name that are searched
_SUFFIX = re.compile(r"\.(?:task|workflow|agent|tool|chat|completion|embeddings)$", re.IGNORECASE)
_RETRIEVES = re.compile(
    r"(?:.*[._])?(?:retrieve|retrieval|retriever)(?!\w*_?(?:chain|qa|agent))(?:[_.]|$|[A-Z])"
)
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
    may_retrieve = attributes.get(_TRACELOOP_KIND) == "task" and _retrieves(_entity(span))
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER) or may_retrieve:
        documents = read_documents(_outputs(output))
        documents = _ranking(span) if documents is None else documents
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
    asked = first_value(attributes, (_ENTITY + "input", "crewai.task.description"))
    content.query, content.query_gap = find_question(asked)
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        content.documents = documents
        content.documents_gap = missing_documents_gap(documents, output)
    elif content.role is SpanRole.TOOL:
        content.documents = read_tool_documents(_outputs(output))
    else:
        content.answer, content.answer_gap = find_answer(output)
    return content


def _ranking(span: Span) -> list[RetrievedDocument] | None:
    """Return what Cohere has ranked: completions `Doc 1, Score: 0.9` of the prompts' documents."""
    prompts = flattened_items(span.attributes, "gen_ai.prompt")
    given = [scalar_text(one.get("content")) for _, one in prompts if one.get("role") != "user"]
    ranked: list[RetrievedDocument] = []
    for _, one in flattened_items(span.attributes, "gen_ai.completion"):
        match = _RANKED.fullmatch(str(one.get("content"))[:_MAX_RANKED])
        if match is None or int(match[1]) >= len(given):
            return None
        ranked.append(
            RetrievedDocument(
                text=given[int(match[1])], score=parse_number(match[2]), score_kind="similarity"
            )
        )
    return ranked or None


def _retrieves(name: str) -> bool:
    """Return whether a task is named as one that retrieves: `retrieve_documents`, `get_context`."""
    fetches = RETRIEVER_NAME.search(name) is not None and "retriev" not in name.lower()
    return fetches or _RETRIEVES.match(name[:_MAX_NAME]) is not None


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
    text = reply_of(replies)
    text = text or next((reply.text for reply in replies if reply.text), text)
    content.calls_tools = text is None and any(message.tools for message in replies)
    if text is None and not content.calls_tools and content.query and _ended_in_words(attributes):
        text = ""  # it writes no attribute for an empty text
    if text is None and not replies:
        content.answer, content.answer_gap = find_answer(attributes.get(_ENTITY + "output"))
    else:
        content.answer = text
    if is_hidden(content.query):
        content.query = None
        content.query_gap = Reason.CONTENT_HIDDEN
    if is_hidden(content.answer):
        content.answer = None
        content.answer_gap = Reason.CONTENT_HIDDEN
    if content.answer is not None and is_truncated(content.answer):
        content.answer_gap = Reason.ANSWER_TRUNCATED


def _ended_in_words(attributes: Mapping[str, AttributeValue]) -> bool:
    """Return whether a completion is told to have ended otherwise than for a tool."""
    finish = attributes.get("gen_ai.completion.0.finish_reason")
    return isinstance(finish, str) and bool(finish) and "tool" not in finish and finish != "error"


def _association_tags(span: Span) -> dict[str, str]:
    tags: dict[str, str] = {}
    for key, value in span.attributes.items():
        if key.startswith(_ASSOCIATION) and len(tags) < _MAX_TAGS:
            name = key[len(_ASSOCIATION) :]
            text = scalar_text(value)
            if name not in ("session_id", "user_id") and text and not name.startswith("ls_"):
                tags[name] = text
    return tags
