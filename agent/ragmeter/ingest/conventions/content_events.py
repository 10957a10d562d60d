"""Prompts and completions that are recorded as events or as lines of text."""

from __future__ import annotations

import re
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    asks_tools_only,
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
    ChatMessage,
    find_answer,
    find_question,
    last_text_of,
    read_messages,
)
from ragmeter.ingest.conventions.values import (
    parse_nested_json,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

_PROMPT = "gen_ai.content.prompt"
_COMPLETION = "gen_ai.content.completion"
_ADOT_CONTENT = ("message", "content")
_MAX_LINES = 500  # messages of one text, the last ones
_ROLE = re.compile(r"^(system|developer|user|human|assistant|ai|tool|function): ", re.MULTILINE)
# Messages as Semantic Kernel of .NET prints them: `[{"role:" user, "content:" ...}]` is no JSON
_PRINTED = re.compile(r'(?:\A\[|\}, ?\n)\{"role:" (\w{1,20}), "content:" ?')
_REPLIES = ("assistant: ", '[{"role:" ')
_ROLE_NAMES = {"human": "user", "ai": "assistant", "developer": "system"}


def read_content_events(span: Span, full: bool = True) -> SpanContent:
    """Read a span whose content is in content events."""
    content = read_by_table(key_table("content_events"), span.attributes, full)
    if content.role is SpanRole.OTHER and any(event.name == _COMPLETION for event in span.events):
        content.role = SpanRole.LLM
    endpoint = scalar_text(span.attributes.get("gen_ai.endpoint")) or ""
    if content.role is SpanRole.RETRIEVER and "retrieve" not in endpoint and endpoint:
        # query engines are whole requests, loading documents is index building
        content.role = SpanRole.CHAIN
    if content.role not in (SpanRole.LLM, SpanRole.CHAIN, SpanRole.RETRIEVER, SpanRole.TOOL):
        return content
    if full or not defer_content(content):
        content.query, content.query_gap = _find_prompt(_value(span, _PROMPT, "gen_ai.prompt"))
        if content.role is not SpanRole.RETRIEVER:
            completion = _value(span, _COMPLETION, "gen_ai.completion")
            content.calls_tools = asks_tools_only(completion)
            if not content.calls_tools:
                is_reply = isinstance(completion, str) and completion.startswith(_REPLIES)
                text = (
                    last_text_of(read_message_lines(completion), "assistant") if is_reply else None
                )
                content.answer, content.answer_gap = find_answer(text or completion)
    return content


def _value(span: Span, event_name: str, key: str) -> Any:
    """Return the first value of an event, else that of the span's attribute."""
    holders = [event.attributes for event in span.events if event.name == event_name]
    values = (first_value(holder, (key, event_name)) for holder in (*holders, span.attributes))
    return next((value for value in values if value is not None), None)


def _find_prompt(value: Any) -> tuple[str | None, Reason | None]:
    opened = parse_nested_json(value)
    messages = (
        read_messages(opened) if isinstance(opened, (list, dict)) else read_message_lines(opened)
    )
    text = last_text_of(messages, "user")
    return find_question(text if text is not None else opened)


def read_message_lines(text: Any) -> list[ChatMessage]:
    """Read messages written as `role: text` from the first character on; empty for other text."""
    if not isinstance(text, str):
        return []
    pattern = _ROLE if _ROLE.match(text) else _PRINTED
    if not pattern.match(text):
        return []
    if pattern is _PRINTED:
        text = text.strip().removesuffix("]").removesuffix("}")
    marks = list(pattern.finditer(text))[-_MAX_LINES:]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [
        ChatMessage(
            _ROLE_NAMES.get(mark[1].lower(), mark[1].lower()),
            scalar_text(text[mark.end() : end].strip()),
        )
        for mark, end in zip(marks, ends, strict=True)
    ]


def matches_adot(span: Span) -> bool:
    """Return whether AWS' distribution has moved the content of a span into an event.

    It is named as the scope of the span is (`LLOHandler`; the spans of AgentCore have it).
    """
    return bool(span.scope) and any(event.name == span.scope for event in span.events)


def read_adot(span: Span, full: bool = True) -> SpanContent:
    """Read the messages that AWS' distribution has moved into an event."""
    content = SpanContent(convention="adot")
    if not full and defer_content(content):
        return content
    for event in span.events:
        if event.name == span.scope:
            prompts = read_messages(_adot_messages(event.attributes.get("input")))
            replies = read_messages(_adot_messages(event.attributes.get("output")))
            text = last_text_of(prompts, "user")
            content.query, content.query_gap = find_question(text)
            text = last_text_of(replies, "assistant")
            content.answer, content.answer_gap = find_answer(text)
    return content


def _adot_messages(side: Any) -> list[Any]:
    """Return messages whose content Strands has put into an object, or into JSON text of parts."""
    opened = parse_nested_json(side)
    messages = opened.get("messages") if isinstance(opened, dict) else None
    if not isinstance(messages, list):
        return []
    found = []
    for message in messages[-_MAX_LINES:]:
        if isinstance(message, dict):
            content = parse_nested_json(message.get("content"))
            if isinstance(content, dict) and not content.keys().isdisjoint(_ADOT_CONTENT):
                content = first_value(content, _ADOT_CONTENT)
            found.append({**message, "content": parse_nested_json(content)})
    return found
