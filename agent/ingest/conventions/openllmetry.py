"""OpenLLMetry (Traceloop): `traceloop.*`, `gen_ai.prompt.N` and `gen_ai.task.*` attributes.

OpenLLMetry (Traceloop): `traceloop.*`, and its old attributes `gen_ai.prompt.N` of model calls.

`traceloop.span.kind` says workflow, task, agent or tool and never retriever: that is the operation
`vector_db_retrieve` (LangChain) or else the name of the entity (`VectorIndexRetriever.task`). Its
spans of vector databases are read in `vector_db`.

`gen_ai.task.*`: the task attributes that newer OpenLLMetry writes beside `traceloop.entity.*`
and that Amazon Bedrock AgentCore reads from agents.

Source: traceloop/openllmetry 0.62 (LangChain callback handler, semantic conventions), the
AgentCore documentation (`gen_ai.task.input` and `.output` on the `invoke_agent` span). Traps:
- The value is JSON text with OpenLLMetry, plain text with AgentCore.
- `vector_db_retrieve` as operation is a framework's retriever, not a vector database span.
- `gen_ai.task.status` = `failure` is said without a span status.
"""

from __future__ import annotations

import re
from typing import Any

from ragmeter.ingest.conventions.documents import read_documents, read_tool_documents
from ragmeter.ingest.conventions.key_tables import KeyTable, read_by_keys
from ragmeter.ingest.conventions.messages import last_text_of, read_flattened_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    has_flattened_items,
    is_hidden,
    is_truncated,
    is_truncated_json,
    parse_count,
    parse_nested_json,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_KIND = "traceloop.span.kind"
_ENTITY = "traceloop.entity."
_ASSOCIATION = "traceloop.association.properties."
_OPERATIONS = {
    "vector_db_retrieve": SpanRole.RETRIEVER,
    "rerank": SpanRole.RERANKER,
    "embeddings": SpanRole.EMBEDDING,
    "embedding": SpanRole.EMBEDDING,
    "chat": SpanRole.LLM,
    "completion": SpanRole.LLM,
    "text_completion": SpanRole.LLM,
    "generate_content": SpanRole.LLM,
}
_SUFFIX = re.compile(r"\.(?:task|workflow|agent|tool|chat|completion|embeddings)$", re.IGNORECASE)
_RETRIEVER = re.compile(r"Retriever$")
_RETRIEVES = re.compile(r"_?(?:retrieve|retrieval)(?![a-z]*_chain)(?:_|$|[A-Z])")
_RERANKER = re.compile(r"(?:Rerank(?:er)?|NodePostprocessor|Postprocessor)$|^rerank(?:_|$)")
_EMBEDDING = re.compile(r"Embeddings?$")


def matches_openllmetry(span: Span) -> bool:
    return any(
        key.startswith(("traceloop.", "gen_ai.prompt.0", "gen_ai.completion.0", "llm.request.type"))
        for key in span.attributes
    )


def read_openllmetry(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = SpanContent(convention="openllmetry")
    output = attributes.get(_ENTITY + "output")
    found: list[RetrievedDocument] | None = None
    reading.role = _role(span)
    if reading.role in (SpanRole.RETRIEVER, SpanRole.RERANKER) or _may_retrieve(span):
        found = read_documents(_outputs(output))
        if reading.role is SpanRole.CHAIN and found and any(one.text for one in found):
            reading.role = SpanRole.RETRIEVER
    reading.session = scalar_text(attributes.get(_ASSOCIATION + "session_id"))
    reading.user = scalar_text(attributes.get(_ASSOCIATION + "user_id"))
    reading.prompt_version = scalar_text(attributes.get("traceloop.prompt.version"))
    reading.tags = _tags(span)
    if attributes.get("gen_ai.task.status") == "failure":
        reading.failed = True
    if reading.role is SpanRole.EMBEDDING:
        return reading
    if reading.role is SpanRole.LLM:
        _usage(span, reading)
        if content or not may_defer_content(reading):
            _call(span, reading)
        return reading
    if not content and may_defer_content(reading):
        return reading
    reading.query, reading.query_gap = find_question(attributes.get(_ENTITY + "input"))
    if reading.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        reading.documents = found
        if is_hidden(output):
            reading.documents_gap = ContentGap.HIDDEN
        elif found is None and is_truncated_json(output):
            reading.documents_gap = ContentGap.PASSAGES_TRUNCATED
    elif reading.role is SpanRole.TOOL:
        reading.documents = read_tool_documents(_outputs(output))
    else:
        reading.answer, reading.answer_gap = find_answer(output)
    return reading


def _entity(span: Span) -> str:
    name = scalar_text(span.attributes.get(_ENTITY + "name")) or span.name
    return _SUFFIX.sub("", name)


def _role(span: Span) -> SpanRole:
    attributes = span.attributes
    for key in ("gen_ai.operation.name", "llm.request.type"):
        operation = attributes.get(key)
        if isinstance(operation, str) and operation.lower() in _OPERATIONS:
            return _OPERATIONS[operation.lower()]
    name = _entity(span)
    if _EMBEDDING.search(name):
        return SpanRole.EMBEDDING
    if _RETRIEVER.search(name):
        return SpanRole.RETRIEVER
    if _RERANKER.search(name):
        return SpanRole.RERANKER
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


def _may_retrieve(span: Span) -> bool:
    """A task that a user has named so: `retrieve_documents`, but not `retrieval_chain`."""
    kind = span.attributes.get(_KIND)
    return kind == "task" and _RETRIEVES.match(_entity(span)) is not None


def _outputs(value: Any) -> Any:
    opened = parse_nested_json(value)
    if isinstance(opened, dict) and "documents" not in opened:
        for key in ("outputs", "output"):
            if key in opened:
                return opened[key]
    return opened


def _call(span: Span, reading: SpanContent) -> None:
    attributes = span.attributes
    asked = read_flattened_messages(attributes, "gen_ai.prompt")
    told = read_flattened_messages(attributes, "gen_ai.completion")
    reading.query = last_text_of(asked, "user")
    if reading.query is None and not asked:
        reading.query, reading.query_gap = find_question(attributes.get(_ENTITY + "input"))
    text = last_text_of(told, "assistant") or next((t.text for t in told if t.text), None)
    reading.calls_tools = text is None and any(turn.tools for turn in told)
    if text is None and not told:
        reading.answer, reading.answer_gap = find_answer(attributes.get(_ENTITY + "output"))
    else:
        reading.answer = text
    if is_hidden(reading.query):
        reading.query, reading.query_gap = None, ContentGap.HIDDEN
    if is_hidden(reading.answer):
        reading.answer, reading.answer_gap = None, ContentGap.HIDDEN
    if reading.answer is not None and is_truncated(reading.answer):
        reading.answer_gap = ContentGap.ANSWER_TRUNCATED


def _usage(span: Span, reading: SpanContent) -> None:
    attributes = span.attributes
    reading.model = scalar_text(attributes.get("gen_ai.response.model")) or scalar_text(
        attributes.get("gen_ai.request.model")
    )
    for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"):
        if reading.input_tokens is None:
            reading.input_tokens = parse_count(attributes.get(key))
    for key in ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"):
        if reading.output_tokens is None:
            reading.output_tokens = parse_count(attributes.get(key))
    for event in span.events:
        if event.name == "llm.content.completion.chunk" and event.time > 0:
            reading.first_token_ns = event.time
            break


def _tags(span: Span) -> dict[str, str]:
    """The application's association properties."""
    found: dict[str, str] = {}
    for key, value in span.attributes.items():
        if key.startswith(_ASSOCIATION) and len(found) < 32:
            name = key[len(_ASSOCIATION) :]
            text = scalar_text(value)
            if name not in ("session_id", "user_id") and text and not name.startswith("ls_"):
                found[name] = text
    return found


_GEN_AI_TASK_KEYS = KeyTable(
    convention="gen_ai_task",
    kind=("gen_ai.operation.name", "gen_ai.task.kind"),
    roles={
        "vector_db_retrieve": SpanRole.RETRIEVER,
        "retrieval": SpanRole.RETRIEVER,
        "rerank": SpanRole.RERANKER,
        "execute_tool": SpanRole.TOOL,
        "embeddings": SpanRole.EMBEDDING,
        "embedding": SpanRole.EMBEDDING,
        "chat": SpanRole.LLM,
        "generate_content": SpanRole.LLM,
        "text_completion": SpanRole.LLM,
    },
    unknown=SpanRole.CHAIN,
    query=("gen_ai.task.input",),
    answer=("gen_ai.task.output",),
)


def matches_gen_ai_task(span: Span) -> bool:
    return "gen_ai.task.input" in span.attributes or "gen_ai.task.output" in span.attributes


def read_gen_ai_task(span: Span, content: bool = True) -> SpanContent:
    reading = read_by_keys(_GEN_AI_TASK_KEYS, span.attributes, content)
    reading.failed = str(span.attributes.get("gen_ai.task.status", "")).lower() == "failure"
    return reading
