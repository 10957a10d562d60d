"""Agent frameworks with their own attributes: Google ADK, and Pydantic AI with Logfire.

Google's Agent Development Kit (`gcp.vertex.agent.*`), Python 1.x.

Source: google/adk-python `src/google/adk/telemetry/tracing.py` and `_experimental_semconv.py`;
google-genai's `GroundingMetadata`. Traps:
- Tool spans carry `llm_request` and `llm_response` too, always "{}".
- With content switched off both are empty objects: hidden, not empty.
- Replies have the role `model`; a tool's result is a message of the role `user`.
- Grounding by Vertex AI Search or Google Search is inside the reply: `grounding_metadata` holds
  the chunks and which stretch of the answer they support, in BYTES of UTF-8, not characters.
  Only `retrieved_context` has text; a web chunk has an address and a title.

Pydantic AI's instrumentation (versions 1 to 3 of its format) and Logfire's for model clients.

Source: pydantic/pydantic-ai `pydantic_ai_slim/pydantic_ai/models/instrumented.py`, pydantic/logfire
`_internal/integrations/llm_providers/*.py` and `logfire/_internal/main.py`. Traps:
- An agent run holds the whole conversation: `all_messages_events` (version 1, events with a role)
  or `pydantic_ai.all_messages` (later, messages with parts), and `final_result`.
- A model call holds `events` (version 1); later versions write the official `gen_ai.*` names.
- `final_result` may be an object: the agent's structured output.
- Tools are the retrievers: `tool_arguments` and `tool_response`, later `gen_ai.tool.call.*`.
- Streams of Logfire's own instrumentation end in a second span that is a log record, with
  `combined_chunk_content`; the first span has the request only.
- A `pending_span` is a copy that is sent when a span starts. It is no span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    KeyTable,
    asks_tools_only,
    fill_content,
    first_value,
    read_by_keys,
)
from ragmeter.ingest.conventions.messages import ChatMessage, last_text_of, read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import parse_count, parse_nested_json, scalar_text
from ragmeter.ingest.spans import Span

_REQUEST = "gcp.vertex.agent.llm_request"
_RESPONSE = "gcp.vertex.agent.llm_response"
_GOOGLE_ADK_KEYS = KeyTable(
    convention="google_adk",
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=("gcp.vertex.agent.session_id", "gen_ai.conversation.id"),
    user=("gcp.vertex.agent.user_id",),
    tags={"gen_ai.agent.name": "agent"},
)
_ADK_MARKS = (
    _REQUEST,
    _RESPONSE,
    "gcp.vertex.agent.tool_response",
    "gcp.vertex.agent.session_id",
    "gcp.vertex.agent.invocation_id",
)
_MAX_CHUNKS = 1_000


def matches_google_adk(span: Span) -> bool:
    return span.scope == "gcp.vertex.agent" or not span.attributes.keys().isdisjoint(_ADK_MARKS)


def read_google_adk(span: Span, content: bool = True) -> SpanContent:
    """Always whole: a reply may hold documents and says whether it failed."""
    attributes = span.attributes
    reading = read_by_keys(_GOOGLE_ADK_KEYS, attributes)
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool" or "gcp.vertex.agent.tool_response" in attributes:
        reading.role = SpanRole.TOOL
        fill_content(
            reading,
            attributes.get("gcp.vertex.agent.tool_call_args"),
            attributes.get("gcp.vertex.agent.tool_response"),
        )
        return reading
    if _REQUEST not in attributes and _RESPONSE not in attributes:
        known = operation == "invoke_agent" or span.name in ("invocation", "agent_run")
        reading.role = (
            SpanRole.CHAIN if known or span.name.startswith("invoke_agent") else SpanRole.OTHER
        )
        return reading
    reading.role = SpanRole.LLM
    request, response = (
        parse_nested_json(attributes.get(_REQUEST)),
        parse_nested_json(attributes.get(_RESPONSE)),
    )
    if request in ({}, "", None) and response in ({}, "", None):
        reading.query_gap = reading.answer_gap = ContentGap.HIDDEN
        return reading
    if isinstance(request, dict):
        reading.model = reading.model or scalar_text(request.get("model"))
        reading.query = _adk_question(request.get("contents"))
    if isinstance(response, dict):
        reply = response.get("content")
        parts = reply.get("parts") if isinstance(reply, dict) else None
        reading.answer = _adk_text(parts)
        reading.calls_tools = reading.answer is None and _has(parts, "function_call")
        if response.get("error_code") is not None:
            reading.failed = True
            reading.error_type = scalar_text(response.get("error_code"))
            reading.error = scalar_text(response.get("error_message"))
        _grounding(reading, response.get("grounding_metadata"))
    return reading


def _adk_text(parts: Any) -> str | None:
    if not isinstance(parts, list):
        return None
    texts = [
        part["text"]
        for part in parts[:_MAX_CHUNKS]
        if isinstance(part, dict) and isinstance(part.get("text"), str) and not part.get("thought")
    ]
    return scalar_text("".join(texts))


def _has(parts: Any, key: str) -> bool:
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get(key) for part in parts[:_MAX_CHUNKS]
    )


def _adk_question(contents: Any) -> str | None:
    """The last text that a user wrote; a tool's result has the user's role but no text."""
    if not isinstance(contents, list):
        return None
    for content in reversed(contents[-_MAX_CHUNKS:]):
        if isinstance(content, dict) and content.get("role", "user") == "user":
            text = _adk_text(content.get("parts"))
            if text is not None:
                return text
    return None


def _grounding(reading: SpanContent, grounding: Any) -> None:
    if not isinstance(grounding, dict) or not isinstance(grounding.get("grounding_chunks"), list):
        return
    documents = []
    for n, chunk in enumerate(grounding["grounding_chunks"][:_MAX_CHUNKS]):
        inner = next((x for x in _inner(chunk) if isinstance(x, dict)), {})
        text = scalar_text(inner.get("text"))
        identity = scalar_text(inner.get("uri")) or scalar_text(inner.get("title")) or f"chunk-{n}"
        documents.append(
            RetrievedDocument(id=identity, text=text, gap=None if text else ContentGap.ID_ONLY)
        )
    if not documents:
        return
    reading.documents = documents
    supports = grounding.get("grounding_supports")
    answer = (reading.answer or "").encode()
    for support in supports[:_MAX_CHUNKS] if isinstance(supports, list) else []:
        if not isinstance(support, dict):
            continue
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        start, end = (
            parse_count(segment.get("start_index", 0)),
            parse_count(segment.get("end_index")),
        )
        numbers = support.get("grounding_chunk_indices")
        ids = [
            documents[at].id
            for n in (numbers[:_MAX_CHUNKS] if isinstance(numbers, list) else [])
            if (at := parse_count(n)) is not None and at < len(documents)
        ]
        if ids and start is not None and end is not None and start < end <= len(answer):
            first = len(answer[:start].decode(errors="ignore"))
            last = len(answer[:end].decode(errors="ignore"))
            reading.citations.append((first, last, ids))


def _inner(chunk: Any) -> list[Any]:
    if not isinstance(chunk, dict):
        return []
    return [chunk.get(key) for key in ("retrieved_context", "web", "maps")]


_LOGFIRE_KEYS = KeyTable(
    convention="logfire",
    model=("gen_ai.response.model", "gen_ai.request.model", "model_name"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    cost_usd=("operation.cost",),
    session=("gen_ai.conversation.id",),
    tags={"agent_name": "agent", "gen_ai.agent.name": "agent"},
)
_HISTORY = ("pydantic_ai.all_messages", "all_messages_events")
_SCOPES = frozenset({"pydantic-ai", "logfire.openai", "logfire.anthropic"})
_LOGFIRE_MARKS = (*_HISTORY, "logfire.msg_template", "logfire.msg")
_CALLS = ("request_data", "response_data", "events")
_TOOLS = (
    "tool_arguments",
    "tool_response",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)


def matches_logfire(span: Span) -> bool:
    return span.scope in _SCOPES or not span.attributes.keys().isdisjoint(_LOGFIRE_MARKS)


def read_logfire(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    if attributes.get("logfire.span_type") == "pending_span":
        return SpanContent(role=SpanRole.CHAIN, convention=_LOGFIRE_KEYS.convention)
    reading = read_by_keys(_LOGFIRE_KEYS, attributes)
    history = first_value(attributes, _HISTORY)
    if history is not None or "final_result" in attributes:
        reading.role = SpanRole.CHAIN
        if not content and may_defer_content(reading):
            return reading
        turns = _logfire_messages(history)
        reading.query, reading.query_gap = _logfire_question(turns)
        reading.answer, reading.answer_gap = find_answer(attributes.get("final_result"))
        if reading.answer is None:
            reading.answer = last_text_of(turns, "assistant")
    elif first_value(attributes, _TOOLS) is not None:
        reading.role = SpanRole.TOOL
        fill_content(
            reading,
            first_value(attributes, ("tool_arguments", "gen_ai.tool.call.arguments")),
            first_value(attributes, ("tool_response", "gen_ai.tool.call.result")),
        )
    elif first_value(attributes, _CALLS) is not None:
        _logfire_call(reading, attributes)
    return reading


def _logfire_call(reading: SpanContent, attributes: Mapping[str, Any]) -> None:
    events = parse_nested_json(attributes.get("events"))
    request = parse_nested_json(attributes.get("request_data"))
    response = parse_nested_json(attributes.get("response_data"))
    if isinstance(events, list):
        reading.role = SpanRole.LLM
        turns = _logfire_messages(events)
        reading.query = last_text_of(turns, "user")
        reading.calls_tools = asks_tools_only(events[-1:])
        if not reading.calls_tools and turns and turns[-1].role == "assistant":
            reading.answer = turns[-1].text
    if isinstance(request, dict) and ("messages" in request or "prompt" in request):
        reading.role = SpanRole.LLM
        if reading.query is None:
            reading.query, reading.query_gap = find_question(request)
    if isinstance(response, dict) and reading.answer is None:
        made = response.get("combined_chunk_content", response.get("message"))
        if made is None:
            made = response.get("text")
        if made is not None:
            reading.role = SpanRole.LLM
            reading.calls_tools = asks_tools_only([made])
            if not reading.calls_tools:
                reading.answer, reading.answer_gap = find_answer(made)
        usage = response.get("usage")
        if isinstance(usage, dict) and reading.input_tokens is None:
            reading.input_tokens = parse_count(
                usage.get("prompt_tokens", usage.get("input_tokens"))
            )
            reading.output_tokens = parse_count(
                usage.get("completion_tokens", usage.get("output_tokens"))
            )


def _logfire_messages(value: Any) -> list[ChatMessage]:
    return read_messages(value) if value is not None else []


def _logfire_question(turns: list[ChatMessage]) -> tuple[str | None, Any]:
    text = last_text_of(turns, "user")
    return find_question(text) if text is not None else (None, None)
