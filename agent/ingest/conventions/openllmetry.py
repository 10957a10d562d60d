"""OpenLLMetry (Traceloop): `traceloop.*`, and its old attributes `gen_ai.prompt.N` of model calls.

`traceloop.span.kind` says workflow, task, agent or tool and never retriever: that is the operation
`vector_db_retrieve` (LangChain) or else the name of the entity (`VectorIndexRetriever.task`). Its
spans of vector databases are read in `vector_db`.
"""

from __future__ import annotations

import re
from typing import Any

from agent.ingest.conventions.documents import documents_in, documents_of_tool
from agent.ingest.conventions.flatten import has_items
from agent.ingest.conventions.reading import Document, Gap, Reading, Role, leave_out
from agent.ingest.conventions.texts import (
    answer_in,
    cut_json,
    cut_off,
    flat_messages,
    hidden,
    last_of,
    open_json,
    question_in,
    text_of,
    whole,
)
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

_KIND = "traceloop.span.kind"
_ENTITY = "traceloop.entity."
_ASSOCIATION = "traceloop.association.properties."
_OPERATIONS = {
    "vector_db_retrieve": Role.RETRIEVER,
    "rerank": Role.RERANKER,
    "embeddings": Role.EMBEDDING,
    "embedding": Role.EMBEDDING,
    "chat": Role.LLM,
    "completion": Role.LLM,
    "text_completion": Role.LLM,
    "generate_content": Role.LLM,
}
_SUFFIX = re.compile(r"\.(?:task|workflow|agent|tool|chat|completion|embeddings)$", re.IGNORECASE)
_RETRIEVER = re.compile(r"Retriever$")
_RETRIEVES = re.compile(r"_?(?:retrieve|retrieval)(?![a-z]*_chain)(?:_|$|[A-Z])")
_RERANKER = re.compile(r"(?:Rerank(?:er)?|NodePostprocessor|Postprocessor)$|^rerank(?:_|$)")
_EMBEDDING = re.compile(r"Embeddings?$")


def matches(span: Span) -> bool:
    return any(
        key.startswith(("traceloop.", "gen_ai.prompt.0", "gen_ai.completion.0", "llm.request.type"))
        for key in span.attributes
    )


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    reading = Reading(convention="openllmetry")
    output = attributes.get(_ENTITY + "output")
    found: list[Document] | None = None
    reading.role = _role(span)
    if reading.role in (Role.RETRIEVER, Role.RERANKER) or _may_retrieve(span):
        found = documents_in(_outputs(output))
        if reading.role is Role.CHAIN and found and any(one.text for one in found):
            reading.role = Role.RETRIEVER
    reading.session = text_of(attributes.get(_ASSOCIATION + "session_id"))
    reading.user = text_of(attributes.get(_ASSOCIATION + "user_id"))
    reading.prompt_version = text_of(attributes.get("traceloop.prompt.version"))
    reading.tags = _tags(span)
    if attributes.get("gen_ai.task.status") == "failure":
        reading.failed = True
    if reading.role is Role.EMBEDDING:
        return reading
    if reading.role is Role.LLM:
        _usage(span, reading)
        if content or not leave_out(reading):
            _call(span, reading)
        return reading
    if not content and leave_out(reading):
        return reading
    reading.query, reading.query_gap = question_in(attributes.get(_ENTITY + "input"))
    if reading.role in (Role.RETRIEVER, Role.RERANKER):
        reading.documents = found
        if hidden(output):
            reading.documents_gap = Gap.HIDDEN
        elif found is None and cut_json(output):
            reading.documents_gap = Gap.PASSAGES_TRUNCATED
    elif reading.role is Role.TOOL:
        reading.documents = documents_of_tool(_outputs(output))
    else:
        reading.answer, reading.answer_gap = answer_in(output)
    return reading


def _entity(span: Span) -> str:
    name = text_of(span.attributes.get(_ENTITY + "name")) or span.name
    return _SUFFIX.sub("", name)


def _role(span: Span) -> Role:
    attributes = span.attributes
    for key in ("gen_ai.operation.name", "llm.request.type"):
        operation = attributes.get(key)
        if isinstance(operation, str) and operation.lower() in _OPERATIONS:
            return _OPERATIONS[operation.lower()]
    name = _entity(span)
    if _EMBEDDING.search(name):
        return Role.EMBEDDING
    if _RETRIEVER.search(name):
        return Role.RETRIEVER
    if _RERANKER.search(name):
        return Role.RERANKER
    kind = attributes.get(_KIND)
    if kind == "tool":
        return Role.TOOL
    if isinstance(kind, str) and kind:
        return Role.CHAIN
    if has_items(attributes, "gen_ai.prompt") or has_items(attributes, "gen_ai.completion"):
        return Role.LLM
    return Role.OTHER


def _may_retrieve(span: Span) -> bool:
    """A task that a user has named so: `retrieve_documents`, but not `retrieval_chain`."""
    kind = span.attributes.get(_KIND)
    return kind == "task" and _RETRIEVES.match(_entity(span)) is not None


def _outputs(value: Any) -> Any:
    opened = open_json(value)
    if isinstance(opened, dict) and "documents" not in opened:
        for key in ("outputs", "output"):
            if key in opened:
                return opened[key]
    return opened


def _call(span: Span, reading: Reading) -> None:
    attributes = span.attributes
    asked = flat_messages(attributes, "gen_ai.prompt")
    told = flat_messages(attributes, "gen_ai.completion")
    reading.query = last_of(asked, "user")
    if reading.query is None and not asked:
        reading.query, reading.query_gap = question_in(attributes.get(_ENTITY + "input"))
    text = last_of(told, "assistant") or next((t.text for t in told if t.text), None)
    reading.calls_tools = text is None and any(turn.tools for turn in told)
    if text is None and not told:
        reading.answer, reading.answer_gap = answer_in(attributes.get(_ENTITY + "output"))
    else:
        reading.answer = text
    if hidden(reading.query):
        reading.query, reading.query_gap = None, Gap.HIDDEN
    if hidden(reading.answer):
        reading.answer, reading.answer_gap = None, Gap.HIDDEN
    if reading.answer is not None and cut_off(reading.answer):
        reading.answer_gap = Gap.ANSWER_TRUNCATED


def _usage(span: Span, reading: Reading) -> None:
    attributes = span.attributes
    reading.model = text_of(attributes.get("gen_ai.response.model")) or text_of(
        attributes.get("gen_ai.request.model")
    )
    for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"):
        if reading.input_tokens is None:
            reading.input_tokens = whole(attributes.get(key))
    for key in ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"):
        if reading.output_tokens is None:
            reading.output_tokens = whole(attributes.get(key))
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
            text = text_of(value)
            if name not in ("session_id", "user_id") and text and not name.startswith("ls_"):
                found[name] = text
    return found
