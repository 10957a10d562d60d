"""Dialects of the OpenTelemetry GenAI conventions: content span events (1.26 to 1.27) and LoongSuite.

Span events `gen_ai.content.prompt` and `gen_ai.content.completion` (semantic conventions 1.26
and 1.27): OpenLIT before 1.35, Semantic Kernel (Python and .NET), Langtrace, Spring AI milestones.

Source: open-telemetry/semantic-conventions v1.27.0 docs/gen-ai/gen-ai-spans.md, openlit/openlit
`sdk/python/src/openlit/semcov/__init__.py` (and the sample in tests/data/otlp),
microsoft/semantic-kernel `python/semantic_kernel/utils/telemetry/model_diagnostics/decorators.py`.
Traps:
- The convention says JSON; OpenLIT writes lines `role: text`, whose text may have lines too.
- Semantic Kernel's completions are a list of messages, its operations `chat.completions`; newer
  versions send log records, which the reader of the official names understands.
- OpenLIT's span of a framework (`gen_ai.endpoint` = `framework.query_engine.query`) has the
  operation `retrieve` or `retrieval`, but is the whole request: question and answer.
- OpenLIT's retriever spans hold the question and no documents: not captured, not empty.

LoongSuite (Alibaba), an extension of OpenTelemetry's GenAI conventions.

Source: alibaba/loongsuite-python-agent, util/opentelemetry-util-genai
`_extended_semconv/gen_ai_extended_attributes.py` and `extended_span_utils.py`. Traps:
- The role is `gen_ai.span.kind`; operation names differ too (`retrieve_documents`,
  `rerank_documents`), so a reader of the official names alone sees no retrieval.
- Documents are captured only where the application opts in, as JSON text or plain text.
"""

from __future__ import annotations

import re
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    KeyTable,
    asks_tools_only,
    first_value,
    read_by_keys,
)
from ragmeter.ingest.conventions.messages import ChatMessage, last_text_of, read_messages
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole, may_defer_content
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import parse_nested_json, scalar_text
from ragmeter.ingest.spans import Span

_CONTENT_EVENTS_KEYS = KeyTable(
    convention="content_events",
    kind=("gen_ai.operation.name",),
    roles={
        "chat": SpanRole.LLM,
        "chat.completions": SpanRole.LLM,
        "text.completions": SpanRole.LLM,
        "chat.streaming_completions": SpanRole.LLM,
        "text.streaming_completions": SpanRole.LLM,
        "text_completion": SpanRole.LLM,
        "completion": SpanRole.LLM,
        "generate_content": SpanRole.LLM,
        "embeddings": SpanRole.EMBEDDING,
        "embedding": SpanRole.EMBEDDING,
        "framework": SpanRole.CHAIN,
        "agent": SpanRole.CHAIN,
        "execute_task": SpanRole.CHAIN,
        "invoke_agent": SpanRole.CHAIN,
        "invoke_workflow": SpanRole.CHAIN,
        "execute_tool": SpanRole.TOOL,
        "retrieve": SpanRole.RETRIEVER,
        "retrieval": SpanRole.RETRIEVER,
        "rerank": SpanRole.RERANKER,
        "vectordb": SpanRole.VECTOR_DB,
    },
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    output_tokens=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    cost_usd=("gen_ai.usage.cost",),
    user=("gen_ai.request.user",),
    tags={"gen_ai.environment": "environment", "gen_ai.application_name": "application"},
)
# operations that no official version knows; what such spans hold is read by other conventions too
_UNOFFICIAL = frozenset(
    {
        "chat.completions",
        "chat.streaming_completions",
        "text.completions",
        "text.streaming_completions",
        "execute_task",
        "framework",
        "vectordb",
    }
)
_PROMPT = "gen_ai.content.prompt"
_COMPLETION = "gen_ai.content.completion"
_ROLE = re.compile(r"^(system|developer|user|human|assistant|ai|tool|function): ", re.MULTILINE)


def matches_content_events(span: Span) -> bool:
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation in _UNOFFICIAL:
        return True
    if "gen_ai.usage.cost" in attributes or _PROMPT in attributes:
        return True
    if span.scope.startswith("openlit") or attributes.get("telemetry.sdk.name") == "openlit":
        return True
    return bool(span.events) and any(event.name in (_PROMPT, _COMPLETION) for event in span.events)


def read_content_events(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = read_by_keys(_CONTENT_EVENTS_KEYS, attributes, content)
    if reading.role is SpanRole.OTHER and any(event.name == _COMPLETION for event in span.events):
        reading.role = SpanRole.LLM
    endpoint = scalar_text(attributes.get("gen_ai.endpoint")) or ""
    if reading.role is SpanRole.RETRIEVER and "retrieve" not in endpoint and endpoint:
        # query engines are whole requests, loading documents is index building
        reading.role = SpanRole.CHAIN
    if reading.role not in (SpanRole.LLM, SpanRole.CHAIN, SpanRole.RETRIEVER, SpanRole.TOOL):
        return reading
    if content or not may_defer_content(reading):
        _talk(span, reading)
    return reading


def _talk(span: Span, reading: SpanContent) -> None:
    attributes = span.attributes
    prompts: list[Any] = []
    completions: list[Any] = []
    for event in span.events:
        if event.name == _PROMPT:
            prompts.append(first_value(event.attributes, ("gen_ai.prompt", _PROMPT)))
        elif event.name == _COMPLETION:
            completions.append(first_value(event.attributes, ("gen_ai.completion", _COMPLETION)))
    prompts.append(first_value(attributes, ("gen_ai.prompt", _PROMPT)))
    completions.append(first_value(attributes, ("gen_ai.completion", _COMPLETION)))
    reading.query, reading.query_gap = _question_in_events(
        next((x for x in prompts if x is not None), None)
    )
    if reading.role is not SpanRole.RETRIEVER:
        made = next((x for x in completions if x is not None), None)
        reading.calls_tools = asks_tools_only(made)
        if not reading.calls_tools:
            reading.answer, reading.answer_gap = _answer_in_events(made)


def _question_in_events(value: Any) -> tuple[str | None, Any]:
    opened = parse_nested_json(value)
    turns = read_messages(opened) if isinstance(opened, (list, dict)) else spoken_lines(opened)
    text = last_text_of(turns, "user")
    return find_question(text if text is not None else opened)


def _answer_in_events(value: Any) -> tuple[str | None, Any]:
    turns = (
        spoken_lines(value) if isinstance(value, str) and value.startswith("assistant: ") else []
    )
    text = last_text_of(turns, "assistant")
    return find_answer(text if text is not None else value)


def spoken_lines(text: Any) -> list[ChatMessage]:
    """Messages written as `role: text` from the first character on; none where it is otherwise."""
    if not isinstance(text, str) or not _ROLE.match(text):
        return []
    marks = list(_ROLE.finditer(text))[-500:]
    turns = []
    for n, mark in enumerate(marks):
        end = marks[n + 1].start() if n + 1 < len(marks) else len(text)
        role = {"human": "user", "ai": "assistant", "developer": "system"}.get(mark[1], mark[1])
        turns.append(ChatMessage(role, scalar_text(text[mark.end() : end].strip())))
    return turns


_LOONGSUITE_KEYS = KeyTable(
    convention="loongsuite",
    kind=("gen_ai.span.kind", "gen_ai.operation.name"),
    roles={
        "llm": SpanRole.LLM,
        "agent": SpanRole.CHAIN,
        "chain": SpanRole.CHAIN,
        "task": SpanRole.CHAIN,
        "entry": SpanRole.CHAIN,
        "step": SpanRole.CHAIN,
        "tool": SpanRole.TOOL,
        "embedding": SpanRole.EMBEDDING,
        "retriever": SpanRole.RETRIEVER,
        "reranker": SpanRole.RERANKER,
        "memory": SpanRole.OTHER,
        "retrieve_documents": SpanRole.RETRIEVER,
        "rerank_documents": SpanRole.RERANKER,
    },
    query=("gen_ai.retrieval.query", "gen_ai.retrieval.query.text", "gen_ai.input.messages"),
    answer=("gen_ai.output.messages",),
    documents=("gen_ai.rerank.output_documents", "gen_ai.retrieval.documents"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=("gen_ai.session.id",),
    user=("gen_ai.user.id",),
)


def matches_loongsuite(span: Span) -> bool:
    attributes = span.attributes
    return "gen_ai.span.kind" in attributes or attributes.get("gen_ai.operation.name") in (
        "retrieve_documents",
        "rerank_documents",
    )


def read_loongsuite(span: Span, content: bool = True) -> SpanContent:
    return read_by_keys(_LOONGSUITE_KEYS, span.attributes, content)
