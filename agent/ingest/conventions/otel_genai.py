"""The OpenTelemetry GenAI semantic conventions, old and new: operations, messages and events.

Up to 1.36 content is in span or log events, a message each (`gen_ai.user.message`,
`gen_ai.choice`); since 1.37 in `gen_ai.input.messages` and `gen_ai.output.messages`, on the span or
in the event `gen_ai.client.inference.operation.details`, as JSON text or structured. The retrieval
span (1.40) holds ids, and text only where somebody has added it. Content is off by default: what
is not there was not captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import read_documents, read_tool_documents
from ragmeter.ingest.conventions.messages import ChatMessage, last_text_of, read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_hidden,
    is_truncated,
    is_truncated_json,
    looks_like_json,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span, SpanEvent

OPERATION = "gen_ai.operation.name"
_ROLES = {
    "chat": SpanRole.LLM,
    "text_completion": SpanRole.LLM,
    "generate_content": SpanRole.LLM,
    "completion": SpanRole.LLM,
    "generate": SpanRole.LLM,
    "responses": SpanRole.LLM,
    "embeddings": SpanRole.EMBEDDING,
    "embedding": SpanRole.EMBEDDING,
    "retrieval": SpanRole.RETRIEVER,
    "retrieve": SpanRole.RETRIEVER,
    "search_memory": SpanRole.RETRIEVER,
    "rerank": SpanRole.RERANKER,
    "execute_tool": SpanRole.TOOL,
    "invoke_agent": SpanRole.CHAIN,
    "invoke_workflow": SpanRole.CHAIN,
    "chain": SpanRole.CHAIN,
    "evaluate": SpanRole.EVALUATOR,
    "evaluation": SpanRole.EVALUATOR,
}
_DETAILS = "gen_ai.client.inference.operation.details"
_MESSAGES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_VARIABLE = "gen_ai.prompt.variable."
_QUESTIONS = ("question", "query", "input", "user_input", "user_query", "query_str")
_CONTEXTS = ("context", "context_str", "documents", "contexts")


def matches_otel_genai(span: Span) -> bool:
    return any(key.startswith("gen_ai.") for key in span.attributes) or any(
        event.name.startswith("gen_ai.") for event in span.events
    )


def read_otel_genai(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = SpanContent(role=_role(span), convention="otel_genai")
    reading.session = scalar_text(attributes.get("gen_ai.conversation.id")) or scalar_text(
        attributes.get("session.id")
    )
    reading.user = scalar_text(attributes.get("user.id")) or scalar_text(
        attributes.get("enduser.id")
    )
    reading.prompt_version = scalar_text(attributes.get("gen_ai.prompt.version"))
    reading.error_type = scalar_text(attributes.get("error.type"))
    if reading.role is SpanRole.EMBEDDING:
        return reading
    reading.model = scalar_text(attributes.get("gen_ai.response.model")) or scalar_text(
        attributes.get("gen_ai.request.model")
    )
    reading.input_tokens = _first_whole(
        attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"
    )
    reading.output_tokens = _first_whole(
        attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"
    )
    reading.cost_usd = parse_number(attributes.get("gen_ai.usage.cost"))
    wait = parse_number(attributes.get("gen_ai.response.time_to_first_chunk"))
    if wait is not None and 0 <= wait < 1e6 and span.start > 0:
        reading.first_token_ns = span.start + int(wait * 1e9)
    if reading.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        _retrieval(span, reading)
    elif reading.role is SpanRole.TOOL:
        reading.documents = read_tool_documents(attributes.get("gen_ai.tool.call.result"))
    elif content or not may_defer_content(reading):
        _variables(attributes, reading)
        _talk(span, reading)
    return reading


def _first_whole(attributes: Mapping[str, Any], *keys: str) -> int | None:
    return next((n for key in keys if (n := parse_count(attributes.get(key))) is not None), None)


def _role(span: Span) -> SpanRole:
    attributes = span.attributes
    name = attributes.get(OPERATION)
    if isinstance(name, str) and name:
        return _ROLES.get(name.strip().lower(), SpanRole.OTHER)
    if "gen_ai.retrieval.documents" in attributes or "gen_ai.retrieval.query.text" in attributes:
        return SpanRole.RETRIEVER
    if any(key in attributes for key in ("gen_ai.usage.output_tokens", "gen_ai.output.messages")):
        return SpanRole.LLM
    for event in span.events:  # no operation name: before 1.30, or only a system is known
        if event.name in (_DETAILS, "gen_ai.choice", "gen_ai.content.completion"):
            return SpanRole.LLM
    asked = "gen_ai.request.model" in attributes or "gen_ai.response.model" in attributes
    return SpanRole.LLM if asked and "embed" not in span.name.lower() else SpanRole.OTHER


def _retrieval(span: Span, reading: SpanContent) -> None:
    attributes = span.attributes
    for key in ("gen_ai.retrieval.query.text", "gen_ai.retrieval.query", "gen_ai.rerank.query"):
        if reading.query is None:
            reading.query, gap = find_question(attributes.get(key))
            reading.query_gap = reading.query_gap or gap
    raw = attributes.get("gen_ai.retrieval.documents")
    if raw is None:
        for event in span.events:
            raw = raw if raw is not None else _body(event).get("gen_ai.retrieval.documents")
    if is_hidden(raw):
        reading.documents_gap = ContentGap.HIDDEN
        return
    reading.documents = read_documents(raw)
    if reading.documents is None and is_truncated_json(raw):
        reading.documents_gap = ContentGap.PASSAGES_TRUNCATED


def _variables(attributes: Mapping[str, Any], reading: SpanContent) -> None:
    """What a prompt template was filled with."""
    for name in _QUESTIONS:
        text = scalar_text(attributes.get(_VARIABLE + name))
        if text is not None and reading.query is None:
            reading.query, reading.query_gap = find_question(text)
    for name in _CONTEXTS:
        text = scalar_text(attributes.get(_VARIABLE + name))
        if text is not None and reading.context is None and not is_hidden(text):
            reading.context = text


def _body(event: SpanEvent) -> Mapping[str, Any]:
    """An event's attributes; a log event's body and old `gen_ai.event.content` are laid over."""
    merged: dict[str, Any] = dict(event.attributes)
    for key in ("gen_ai.event.content", "event_body", "body"):
        inner = parse_nested_json(merged.get(key))
        if isinstance(inner, dict):
            merged.update(inner)
        elif isinstance(inner, str) and "content" not in merged:
            merged["content"] = inner
    return merged


def _message(role: str, body: Mapping[str, Any]) -> ChatMessage | None:
    inner = parse_nested_json(body.get("message"))
    if isinstance(inner, str) and inner:
        return ChatMessage(role, inner)
    source = inner if isinstance(inner, dict) else body
    found = read_messages([{**source, "role": source.get("role") or role}])
    if not found:
        return None
    turn = found[0]
    turn.tools = turn.tools or bool(parse_nested_json(body.get("tool_calls")))
    turn.text = turn.text if turn.text is None else _unquoted(turn.text)
    return turn


def _unquoted(text: str) -> str:
    opened = parse_nested_json(text)
    if isinstance(opened, str):
        return opened
    found, _ = find_answer(opened) if isinstance(opened, list) else (None, None)
    return found or text


def _talk(span: Span, reading: SpanContent) -> None:
    asked, told = _turns(span)
    # the history is in the input: the question is what the user said last
    text = last_text_of(asked, "user")
    if reading.query is None and text is not None:
        reading.query, reading.query_gap = _marked(text, ContentGap.QUERY_TRUNCATED)
    reply = last_text_of(told, "assistant") or next(
        (turn.text for turn in reversed(told) if turn.text and turn.role in ("", "user")), None
    )
    if reply is not None:
        reading.answer, reading.answer_gap = _marked(reply, ContentGap.ANSWER_TRUNCATED)
    else:
        reading.calls_tools = any(turn.tools for turn in told) or _stopped_for_tools(span)
    if reading.query is None and not asked:
        _cut(span, "gen_ai.input.messages", reading, ContentGap.QUERY_TRUNCATED)
    if reading.answer is None and not told:
        _cut(span, "gen_ai.output.messages", reading, ContentGap.ANSWER_TRUNCATED)


def _marked(text: str, truncated: ContentGap) -> tuple[str | None, ContentGap | None]:
    if is_hidden(text):
        return None, ContentGap.HIDDEN
    return text, truncated if is_truncated(text) else None


def _cut(span: Span, key: str, reading: SpanContent, truncated: ContentGap) -> None:
    """Why messages that are there could not be read."""
    raw = span.attributes.get(key)
    if not isinstance(raw, str) or not raw:
        return
    gap = ContentGap.HIDDEN if is_hidden(raw) else truncated if looks_like_json(raw) else None
    if truncated is ContentGap.QUERY_TRUNCATED:
        reading.query_gap = reading.query_gap or gap
    else:
        reading.answer_gap = reading.answer_gap or gap


def _stopped_for_tools(span: Span) -> bool:
    reasons = parse_nested_json(span.attributes.get("gen_ai.response.finish_reasons"))
    listed = reasons if isinstance(reasons, list) else [reasons]
    return bool(listed) and all(
        isinstance(reason, str) and reason.lower() in ("tool_calls", "tool_call", "tool_use")
        for reason in listed
    )


def _turns(span: Span) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """What went in and what came out: attributes first, then events."""
    attributes = span.attributes
    asked = read_messages(attributes.get("gen_ai.input.messages"))
    told = read_messages(attributes.get("gen_ai.output.messages"))
    if asked and told:
        return asked, told
    old_asked: list[ChatMessage] = []
    old_told: list[ChatMessage] = []
    for event in span.events:
        if not event.name.startswith("gen_ai."):
            continue
        body = _body(event)
        if event.name == _DETAILS:
            asked = asked or read_messages(body.get("gen_ai.input.messages"))
            told = told or read_messages(body.get("gen_ai.output.messages"))
        elif event.name == "gen_ai.choice":
            turn = _message("assistant", body)
            if turn is not None:
                old_told.append(turn)
        elif event.name in _MESSAGES:
            turn = _message(_MESSAGES[event.name], body)
            if turn is not None:
                old_asked.append(turn)
        elif event.name == "gen_ai.content.prompt":
            old_asked += _one_text(body.get("gen_ai.prompt"), "user")
        elif event.name == "gen_ai.content.completion":
            old_told += _one_text(body.get("gen_ai.completion"), "assistant")
    asked = asked or old_asked or _one_text(attributes.get("gen_ai.prompt"), "user")
    told = told or old_told or _one_text(attributes.get("gen_ai.completion"), "assistant")
    return asked, told


def _one_text(value: Any, role: str) -> list[ChatMessage]:
    """A prompt or completion in one text: JSON messages, or lines that begin `user: `."""
    turns = read_messages(value)
    if turns or value is None:
        return turns
    text, _ = find_question(value) if role == "user" else find_answer(value)
    if text is None:
        return []
    if role == "user" and "user: " in text:
        text = text.rpartition("user: ")[2].strip() or text
    return [ChatMessage(role, text.strip())]
