"""Pydantic AI's instrumentation (versions 1 to 3 of its format) and Logfire's for model clients.

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

from agent.ingest.conventions.keyed import (
    Keys,
    asks_tools_only,
    fill_content,
    first,
    read_keyed,
)
from agent.ingest.conventions.reading import Reading, Role, leave_out
from agent.ingest.conventions.texts import (
    Turn,
    answer_in,
    last_of,
    messages_in,
    open_json,
    question_in,
    whole,
)
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="logfire",
    model=("gen_ai.response.model", "gen_ai.request.model", "model_name"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    cost_usd=("operation.cost",),
    session=("gen_ai.conversation.id",),
    tags={"agent_name": "agent", "gen_ai.agent.name": "agent"},
)
HISTORY = ("pydantic_ai.all_messages", "all_messages_events")
SCOPES = frozenset({"pydantic-ai", "logfire.openai", "logfire.anthropic"})
MARKS = (*HISTORY, "logfire.msg_template", "logfire.msg")
CALLS = ("request_data", "response_data", "events")
TOOLS = ("tool_arguments", "tool_response", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")


def matches(span: Span) -> bool:
    return span.scope in SCOPES or not span.attributes.keys().isdisjoint(MARKS)


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    if attributes.get("logfire.span_type") == "pending_span":
        return Reading(role=Role.CHAIN, convention=KEYS.convention)
    reading = read_keyed(KEYS, attributes)
    history = first(attributes, HISTORY)
    if history is not None or "final_result" in attributes:
        reading.role = Role.CHAIN
        if not content and leave_out(reading):
            return reading
        turns = _turns(history)
        reading.query, reading.query_gap = _asked(turns)
        reading.answer, reading.answer_gap = answer_in(attributes.get("final_result"))
        if reading.answer is None:
            reading.answer = last_of(turns, "assistant")
    elif first(attributes, TOOLS) is not None:
        reading.role = Role.TOOL
        fill_content(
            reading,
            first(attributes, ("tool_arguments", "gen_ai.tool.call.arguments")),
            first(attributes, ("tool_response", "gen_ai.tool.call.result")),
        )
    elif first(attributes, CALLS) is not None:
        _call(reading, attributes)
    return reading


def _call(reading: Reading, attributes: Mapping[str, Any]) -> None:
    events = open_json(attributes.get("events"))
    request = open_json(attributes.get("request_data"))
    response = open_json(attributes.get("response_data"))
    if isinstance(events, list):
        reading.role = Role.LLM
        turns = _turns(events)
        reading.query = last_of(turns, "user")
        reading.calls_tools = asks_tools_only(events[-1:])
        if not reading.calls_tools and turns and turns[-1].role == "assistant":
            reading.answer = turns[-1].text
    if isinstance(request, dict) and ("messages" in request or "prompt" in request):
        reading.role = Role.LLM
        if reading.query is None:
            reading.query, reading.query_gap = question_in(request)
    if isinstance(response, dict) and reading.answer is None:
        made = response.get("combined_chunk_content", response.get("message"))
        if made is None:
            made = response.get("text")
        if made is not None:
            reading.role = Role.LLM
            reading.calls_tools = asks_tools_only([made])
            if not reading.calls_tools:
                reading.answer, reading.answer_gap = answer_in(made)
        usage = response.get("usage")
        if isinstance(usage, dict) and reading.input_tokens is None:
            reading.input_tokens = whole(usage.get("prompt_tokens", usage.get("input_tokens")))
            reading.output_tokens = whole(
                usage.get("completion_tokens", usage.get("output_tokens"))
            )


def _turns(value: Any) -> list[Turn]:
    return messages_in(value) if value is not None else []


def _asked(turns: list[Turn]) -> tuple[str | None, Any]:
    text = last_of(turns, "user")
    return question_in(text) if text is not None else (None, None)
