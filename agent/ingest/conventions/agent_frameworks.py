"""Agent frameworks with their own attributes: Google ADK, and Pydantic AI with Logfire.

Google's Agent Development Kit for Python (1.x), `gcp.vertex.agent.*`. Sources: google/adk-python
`src/google/adk/telemetry/tracing.py` and `_experimental_semconv.py`, google-genai's
`GroundingMetadata`. Traps:
- Tool spans carry `llm_request` and `llm_response` too, always "{}".
- With content switched off both are empty objects: hidden, not empty.
- Replies have the role `model`; a tool's result is a message of the role `user`.
- Grounding by Vertex AI Search or Google Search is inside the reply: `grounding_metadata` holds
  the chunks and the stretches of the answer that they support, in BYTES of UTF-8, not characters.
  Only `retrieved_context` has text; a web chunk has an address and a title.

Pydantic AI's instrumentation (versions 1 to 3 of its format) and Logfire's for model clients.
Sources: pydantic/pydantic-ai `pydantic_ai_slim/pydantic_ai/models/instrumented.py`,
pydantic/logfire `_internal/integrations/llm_providers/*.py` and `logfire/_internal/main.py`. Traps:
- An agent run holds the whole conversation: `all_messages_events` (version 1, events with a role)
  or `pydantic_ai.all_messages` (later, messages with parts), and `final_result`.
- A model call holds `events` (version 1); later versions write the official `gen_ai.*` names.
- `final_result` may be an object: the agent's structured output.
- Tools are the retrievers: `tool_arguments` and `tool_response`, later `gen_ai.tool.call.*`.
- Streams of Logfire's own instrumentation end in a second span that is a log record, with
  `combined_chunk_content`; the first span has the request only.
- A `pending_span` is a copy that is sent when a span starts. It is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS
from ragmeter.ingest.conventions.key_tables import (
    asks_tools_only,
    fill_content,
    first_value,
    key_table,
    read_by_table,
)
from ragmeter.ingest.conventions.messages import last_text_of, read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    first_text,
    parse_count,
    parse_nested_json,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_ADK_REQUEST = "gcp.vertex.agent.llm_request"
_ADK_RESPONSE = "gcp.vertex.agent.llm_response"
_ADK_CHUNKS = ("retrieved_context", "web", "maps")
_LOGFIRE_HISTORY = ("pydantic_ai.all_messages", "all_messages_events")
_LOGFIRE_CALLS = ("request_data", "response_data", "events")
_LOGFIRE_TOOL_INPUT = ("tool_arguments", "gen_ai.tool.call.arguments")
_LOGFIRE_TOOL_OUTPUT = ("tool_response", "gen_ai.tool.call.result")


def read_google_adk(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Google ADK; always whole, as a reply may hold documents and an error."""
    attributes = span.attributes
    content = read_by_table(key_table("google_adk"), attributes)
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool" or "gcp.vertex.agent.tool_response" in attributes:
        content.role = SpanRole.TOOL
        fill_content(
            content,
            attributes.get("gcp.vertex.agent.tool_call_args"),
            attributes.get("gcp.vertex.agent.tool_response"),
        )
        return content
    if _ADK_REQUEST not in attributes and _ADK_RESPONSE not in attributes:
        is_agent = span.name in ("invocation", "agent_run") or span.name.startswith("invoke_agent")
        if is_agent or operation == "invoke_agent":
            content.role = SpanRole.CHAIN
        return content
    content.role = SpanRole.LLM
    request = parse_nested_json(attributes.get(_ADK_REQUEST))
    response = parse_nested_json(attributes.get(_ADK_RESPONSE))
    if request in ({}, "", None) and response in ({}, "", None):
        content.query_gap = content.answer_gap = ContentGap.HIDDEN
        return content
    if isinstance(request, dict):
        content.model = content.model or scalar_text(request.get("model"))
        content.query = _adk_question(request.get("contents"))
    if isinstance(response, dict):
        reply = response.get("content")
        parts = reply.get("parts") if isinstance(reply, dict) else None
        content.answer = _adk_text(parts)
        content.calls_tools = content.answer is None and any(
            part.get("function_call") for part in _objects(parts)
        )
        if response.get("error_code") is not None:
            content.failed = True
            content.error_type = scalar_text(response.get("error_code"))
            content.error = scalar_text(response.get("error_message"))
        _fill_grounding(content, response.get("grounding_metadata"))
    return content


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list, empty for any other value."""
    items = value[:MAX_DOCUMENTS] if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _adk_text(parts: Any) -> str | None:
    texts = [
        part["text"]
        for part in _objects(parts)
        if isinstance(part.get("text"), str) and not part.get("thought")
    ]
    return scalar_text("".join(texts))


def _adk_question(contents: Any) -> str | None:
    """Return the last text that a user wrote; a tool's result has the user's role but no text."""
    recent = contents[-MAX_DOCUMENTS:] if isinstance(contents, list) else []
    users = [item for item in _objects(recent) if item.get("role", "user") == "user"]
    texts = (_adk_text(item.get("parts")) for item in reversed(users))
    return next((text for text in texts if text is not None), None)


def _fill_grounding(content: SpanContent, grounding: Any) -> None:
    """Set documents and citations from the metadata of a grounded reply."""
    chunks = grounding.get("grounding_chunks") if isinstance(grounding, dict) else None
    if not isinstance(chunks, list) or not chunks:
        return
    documents = []
    for n, chunk in enumerate(chunks[:MAX_DOCUMENTS]):
        kinds = [chunk.get(key) for key in _ADK_CHUNKS] if isinstance(chunk, dict) else []
        inner: dict[str, Any] = next((kind for kind in kinds if isinstance(kind, dict)), {})
        text = scalar_text(inner.get("text"))
        identity = first_text(inner, ("uri", "title")) or f"chunk-{n}"
        documents.append(
            RetrievedDocument(id=identity, text=text, gap=None if text else ContentGap.ID_ONLY)
        )
    content.documents = documents
    answer = (content.answer or "").encode()
    for support in _objects(grounding.get("grounding_supports")):
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        start, end = (
            parse_count(segment.get("start_index", 0)),
            parse_count(segment.get("end_index")),
        )
        numbers = support.get("grounding_chunk_indices")
        ids = [
            documents[index].id
            for n in (numbers[:MAX_DOCUMENTS] if isinstance(numbers, list) else [])
            if (index := parse_count(n)) is not None and index < len(documents)
        ]
        if ids and start is not None and end is not None and start < end <= len(answer):
            first = len(answer[:start].decode(errors="ignore"))
            last = len(answer[:end].decode(errors="ignore"))
            content.citations.append((first, last, ids))


def read_logfire(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Pydantic AI or Logfire."""
    attributes = span.attributes
    if attributes.get("logfire.span_type") == "pending_span":
        return SpanContent(role=SpanRole.CHAIN, convention="logfire")
    content = read_by_table(key_table("logfire"), attributes)
    history = first_value(attributes, _LOGFIRE_HISTORY)
    if history is not None or "final_result" in attributes:
        content.role = SpanRole.CHAIN
        if not full and defer_content(content):
            return content
        messages = read_messages(history)
        content.query, content.query_gap = find_question(last_text_of(messages, "user"))
        content.answer, content.answer_gap = find_answer(attributes.get("final_result"))
        if content.answer is None:
            content.answer = last_text_of(messages, "assistant")
    elif first_value(attributes, _LOGFIRE_TOOL_INPUT + _LOGFIRE_TOOL_OUTPUT) is not None:
        content.role = SpanRole.TOOL
        fill_content(
            content,
            first_value(attributes, _LOGFIRE_TOOL_INPUT),
            first_value(attributes, _LOGFIRE_TOOL_OUTPUT),
        )
    elif first_value(attributes, _LOGFIRE_CALLS) is not None:
        _fill_logfire_call(content, attributes)
    return content


def _fill_logfire_call(content: SpanContent, attributes: Mapping[str, Any]) -> None:
    events = parse_nested_json(attributes.get("events"))
    request = parse_nested_json(attributes.get("request_data"))
    response = parse_nested_json(attributes.get("response_data"))
    if isinstance(events, list):
        content.role = SpanRole.LLM
        messages = read_messages(events)
        content.query = last_text_of(messages, "user")
        content.calls_tools = asks_tools_only(events[-1:])
        if not content.calls_tools and messages and messages[-1].role == "assistant":
            content.answer = messages[-1].text
    if isinstance(request, dict) and ("messages" in request or "prompt" in request):
        content.role = SpanRole.LLM
        if content.query is None:
            content.query, content.query_gap = find_question(request)
    if isinstance(response, dict) and content.answer is None:
        reply = response.get("combined_chunk_content", response.get("message"))
        if reply is None:
            reply = response.get("text")
        if reply is not None:
            content.role = SpanRole.LLM
            content.calls_tools = asks_tools_only([reply])
            if not content.calls_tools:
                content.answer, content.answer_gap = find_answer(reply)
        usage = response.get("usage")
        if isinstance(usage, dict) and content.input_tokens is None:
            content.input_tokens = parse_count(
                usage.get("prompt_tokens", usage.get("input_tokens"))
            )
            content.output_tokens = parse_count(
                usage.get("completion_tokens", usage.get("output_tokens"))
            )
