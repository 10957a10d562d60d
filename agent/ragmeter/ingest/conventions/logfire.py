"""Logfire; `key_tables.yaml` has the sources and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    asks_tools_only,
    fill_content,
    fill_tokens,
    first_value,
    key_table,
    read_by_table,
)
from ragmeter.ingest.conventions.span_content import (
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
    parse_nested_json,
)
from ragmeter.ingest.spans import Span

_LOGFIRE_HISTORY = ("pydantic_ai.all_messages", "all_messages_events")
_LOGFIRE_CALLS = ("request_data", "response_data", "events")
_LOGFIRE_TOOL_INPUT = ("tool_arguments", "gen_ai.tool.call.arguments")
_LOGFIRE_TOOL_OUTPUT = ("tool_response", "gen_ai.tool.call.result")
# of OpenAI's kit for agents
_AGENTS_FUNCTION = "Function: {name}"
_AGENTS_RUNS = ("OpenAI Agents trace: {name}", "Agent run: {name!r}")


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
    elif attributes.get("logfire.msg_template") in _AGENTS_RUNS:
        content.role = SpanRole.CHAIN
    elif attributes.get("logfire.msg_template") == _AGENTS_FUNCTION:
        content.role = SpanRole.TOOL
        fill_content(content, attributes.get("input"), attributes.get("output"))
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
        if content.input_tokens is None:
            fill_tokens(content, response.get("usage"))
