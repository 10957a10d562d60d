"""Frameworks with their own attributes: Spring AI, Vercel AI SDK, Genkit, LlamaIndex and others.

`key_tables.yaml` has the sources of each and what to beware of.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ragmeter.ingest.conventions.documents import (
    MAX_DOCUMENTS,
    read_document,
    read_documents,
    read_tool_documents,
)
from ragmeter.ingest.conventions.key_tables import (
    fill_documents,
    fill_tokens,
    first_value,
    key_table,
    read_by_table,
    read_role,
)
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.texts import (
    find_answer,
    find_question,
    last_text_of,
    read_messages,
)
from ragmeter.ingest.conventions.values import (
    is_hidden,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.trace import read_finish_reason

_SPRING_AI_QUERY = "db.vector.query.content"
_SPRING_AI_READS = frozenset({"query", "search", "similarity_search", ""})
_MAX_ITEMS = 1_000  # of one joined list
_VERCEL_AI_FIRST_CHUNK = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
_LLAMA_INDEX_METHOD = re.compile(
    r"\.(?:a?(?:stream_)?(?:chat|complete)(?:_with_tools)?|a?predict|a?stream"
    r"|(?P<embedding>_?a?get_\w*embedding\w*))-[0-9a-f-]+\Z"
)
_LLAMA_INDEX_QUERIES = (
    ("QueryStartEvent", "query"),
    ("AgentChatWithStepStartEvent", "user_msg"),
    ("AgentRunStepStartEvent", "input"),
    ("SynthesizeStartEvent", "query"),
    ("RetrievalStartEvent", "str_or_query_bundle"),
    ("LLMCompletionStartEvent", "prompt"),
)
# LiveKit names its texts `lk.pii.*` since 1.7, and `lk.*` before.
_LIVEKIT_TEXTS = ("lk.pii.", "lk.")
_VERCEL_AI_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def read_spring_ai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Spring AI."""
    attributes = span.attributes
    table = key_table("spring_ai")
    role = read_role(table, attributes)
    if role is SpanRole.OTHER and _SPRING_AI_QUERY in attributes:
        role = SpanRole.RETRIEVER
    content = read_by_table(table, attributes, full, role)
    if content.session == "default":
        content.session = None
    if role is SpanRole.RETRIEVER:
        operation = (scalar_text(attributes.get("db.operation.name")) or "").lower()
        if operation not in _SPRING_AI_READS:  # add, delete: index building
            return SpanContent(role=SpanRole.VECTOR_DB, convention=table.convention)
        documents = attributes.get("db.vector.query.response.documents")
        opened = parse_nested_json(documents)
        if isinstance(opened, str) and not is_hidden(documents):
            content.documents = [RetrievedDocument(text=text) for text in _split_list(opened)]
        else:
            fill_documents(content, documents)
        return content
    if not full and defer_content(content):
        return content
    prompt = attributes.get("gen_ai.prompt")
    completion = attributes.get("gen_ai.completion")
    # the last message of a prompt is the user's
    if content.query is None and prompt is not None:
        content.query = _last_text(prompt, "user")
    if content.answer is None and completion is not None:
        content.answer = _last_text(completion, "assistant")
    return content


def _last_text(value: Any, role: str) -> str | None:
    opened = parse_nested_json(value)
    if isinstance(opened, str):
        texts = _split_list(opened)
        return texts[-1] if texts else None
    messages = read_messages(opened)
    if messages:
        return next((message.text for message in reversed(messages) if message.role == role), None)
    if isinstance(opened, list):
        return next((text for x in reversed(opened) if (text := scalar_text(x))), None)
    return None


def _split_list(text: str) -> list[str]:
    """Return the items of `["a", "b"]` whose quotes are not escaped; other text is one item."""
    text = text.strip()
    if text.startswith('["') and text.endswith('"]'):
        items = text[2:-2].split('", "', _MAX_ITEMS - 1)
        return [item for item in items if item.strip()]
    return [text] if text and text != "[]" else []


def read_vercel_ai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of the Vercel AI SDK."""
    attributes = span.attributes
    operation = scalar_text(attributes.get("ai.operationId")) or ""
    content = read_by_table(key_table("vercel_ai"), attributes, full, _vercel_ai_role(operation))
    for name in _personal_tags():
        content.tags.pop(name, None)
    if content.role in (SpanRole.LLM, SpanRole.CHAIN):
        if not content.light:
            calls = parse_nested_json(first_value(attributes, _VERCEL_AI_CALLS))
            content.calls_tools = bool(calls) and content.answer is None
            ended = read_finish_reason(attributes.get("ai.response.finishReason"))
            silent = content.answer is None and attributes.get("ai.response.text") == ""
            if silent and not calls and ended not in (None, "tool_calls", "error"):
                content.answer = ""
        wait_ms = parse_number(first_value(attributes, _VERCEL_AI_FIRST_CHUNK))
        if wait_ms is not None and 0 <= wait_ms < 1e9 and span.start:
            content.first_token_ns = span.start + round(wait_ms * 1e6)
    elif content.role is SpanRole.RERANKER:
        content.documents = _reranked_documents(span)
        content.documents_gap = None
        if content.documents is None and operation == "ai.rerank":
            content.role = SpanRole.OTHER  # the ranking is on the inner span
    return content


def read_genkit(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Genkit."""
    attributes = span.attributes
    content = read_by_table(key_table("genkit"), attributes, full)
    if content.role is SpanRole.LLM:
        content.model = (scalar_text(attributes.get("genkit:name")) or "").rpartition("/")[
            2
        ] or None
        output = parse_nested_json(attributes.get("genkit:output"))
        fill_tokens(content, output.get("usage") if isinstance(output, dict) else None)
    return content


def read_pipecat(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Pipecat."""
    content = read_by_table(key_table("pipecat"), span.attributes, full)
    wait_seconds = parse_number(span.attributes.get("metrics.ttfb"))
    if content.role is SpanRole.LLM and wait_seconds is not None and 0 <= wait_seconds < 1e6:
        content.first_token_ns = span.start + round(wait_seconds * 1e9) if span.start else None
    return content


def read_livekit(span: Span, full: bool = True) -> SpanContent:
    """Read a span of LiveKit's agents."""
    attributes = span.attributes
    if "lk.function_tool.name" in attributes:
        content = SpanContent(SpanRole.TOOL, "livekit")
        if attributes.get("lk.function_tool.is_error") is not True:
            content.documents = read_tool_documents(_livekit(span, "function_tool.output"))
        return content
    chat = _livekit(span, "chat_ctx")
    if chat is None or span.name != "llm_node":
        is_turn = "lk.generation_id" in attributes or span.name == "agent_turn"
        role = SpanRole.CHAIN if is_turn else SpanRole.OTHER
        return read_by_table(key_table("livekit"), attributes, full, role)
    content = SpanContent(SpanRole.LLM, "livekit")
    if full or not defer_content(content):
        history = parse_nested_json(chat)
        items = history.get("items") if isinstance(history, dict) else history
        content.query = last_text_of(read_messages(items), "user")
        content.answer = scalar_text(_livekit(span, "response.text"))
        calls = parse_nested_json(_livekit(span, "response.function_calls"))
        content.calls_tools = content.answer is None and bool(calls)
        silent = any(attributes.get(f"{prefix}response.text") == "" for prefix in _LIVEKIT_TEXTS)
        if silent and content.answer is None and not content.calls_tools:
            content.answer = ""
    return content


def _livekit(span: Span, name: str) -> Any:
    return first_value(span.attributes, tuple(prefix + name for prefix in _LIVEKIT_TEXTS))


def read_eino(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Eino; the messages of a model call are those of OpenLLMetry's first names."""
    table = key_table("eino")
    role = read_role(table, span.attributes)
    if role is SpanRole.LLM:
        return SpanContent(role=role, convention=table.convention)
    return read_by_table(table, span.attributes, full, role)


def read_llama_index(span: Span, full: bool = True) -> SpanContent:
    """Read a span of LlamaIndex's own exporter, whose name tells the class and the method."""
    method = _LLAMA_INDEX_METHOD.search(span.name)
    role = SpanRole.CHAIN
    if method is not None:
        role = SpanRole.EMBEDDING if method["embedding"] else SpanRole.LLM
    content = SpanContent(role=role, convention="llama_index")
    if role is SpanRole.EMBEDDING or (not full and defer_content(content) and not span.events):
        return content
    content.light = False
    held = {
        (event.name, key): event.attributes[key]
        for event in span.events
        for key in event.attributes
    }
    for query in (held.get(key) for key in _LLAMA_INDEX_QUERIES):
        if content.query is None and query is not None:
            content.query, content.query_gap = find_question(query)
    content.answer, content.answer_gap = find_answer(held.get(("LLMPredictEndEvent", "output")))
    chunks = held.get(("GetResponseStartEvent", "text_chunks"))
    if isinstance(chunks, list):
        content.documents = read_documents(chunks)
    return content


@cache
def _personal_tags() -> tuple[str, ...]:
    """Return the metadata that is session or user and must not become a tag."""
    table = key_table("vercel_ai")
    keys = (*table.scalars["session"], *table.scalars["user"])
    return tuple(key.removeprefix(table.tag_prefixes[0]) for key in keys)


def _vercel_ai_role(operation: str) -> SpanRole:
    if operation == "ai.toolCall":
        return SpanRole.TOOL
    if operation.startswith("ai.embed"):
        return SpanRole.EMBEDDING
    if operation.startswith("ai.rerank"):
        return SpanRole.RERANKER
    if operation.endswith((".doGenerate", ".doStream")):
        return SpanRole.LLM
    return SpanRole.CHAIN if operation.startswith(("ai.generate", "ai.stream")) else SpanRole.OTHER


def _reranked_documents(span: Span) -> list[RetrievedDocument] | None:
    """Return the documents in the order of the ranking `[{"index", "relevanceScore"}]`."""
    originals = parse_nested_json(span.attributes.get("ai.documents"))
    ranking = parse_nested_json(span.attributes.get("ai.ranking"))
    if not isinstance(originals, list) or not isinstance(ranking, list):
        return None
    documents = []
    for item in map(parse_nested_json, ranking[:MAX_DOCUMENTS]):
        if not isinstance(item, dict):
            continue
        index = parse_count(item.get("index", item.get("originalIndex")))
        if index is None or index >= len(originals):
            continue
        document = read_document(originals[index])
        if document is not None:
            document.score = parse_number(item.get("relevanceScore", item.get("score")))
            document.score_kind = "" if document.score is None else "similarity"
            documents.append(document)
    return documents
