"""The OpenTelemetry GenAI semantic conventions, old and new: operations, messages and events.

Up to 1.36 content is in span or log events, a message each (`gen_ai.user.message`,
`gen_ai.choice`); since 1.37 in `gen_ai.input.messages` and `gen_ai.output.messages`, on the span or
in the event `gen_ai.client.inference.operation.details`, as JSON text or structured. The retrieval
span (1.40) holds ids, and text only if somebody adds it. Content is off by default, so missing
content was not captured.

Versions 1.26 and 1.27 had it in two events, which some senders still write (`content_events`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import read_tool_documents
from ragmeter.ingest.conventions.key_tables import (
    fill_documents,
    first_value,
    key_table,
)
from ragmeter.ingest.conventions.span_content import (
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.streams import asks_tools, read_event_lines
from ragmeter.ingest.conventions.texts import (
    ChatMessage,
    find_answer,
    find_question,
    last_text_of,
    read_messages,
    reply_of,
    with_gap,
)
from ragmeter.ingest.conventions.values import (
    first_count,
    first_text,
    is_hidden,
    looks_like_json,
    parse_cost,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span, SpanEvent
from ragmeter.reasons import Reason

_MODEL = ("gen_ai.response.model", "gen_ai.request.model")
# the last ones are of Mastra
_SESSION = (
    "gen_ai.conversation.id",
    "session.id",
    "mastra.metadata.threadId",
    "mastra.metadata.sessionId",
)
_USER = ("user.id", "enduser.id", "mastra.metadata.userId", "mastra.metadata.resourceId")
_QUERIES = (
    "gen_ai.retrieval.query.text",
    "gen_ai.retrieval.query",
    "gen_ai.rerank.query",
    "gen_ai.memory.query.text",
)
_DOCUMENTS = "gen_ai.retrieval.documents"
_RECORDS = "gen_ai.memory.records"  # of a search in a memory
_DETAILS = "gen_ai.client.inference.operation.details"
_MESSAGES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_MESSAGE_LISTS = ("gen_ai.input.messages", "gen_ai.output.messages")
_VARIABLE = "gen_ai.prompt.variable."
_QUESTIONS = ("question", "query", "input", "user_input", "user_query", "query_str")
_COST = (  # of AG2, of Langtrace and others, and of LiteLLM's gateway
    "gen_ai.usage.cost",
    "gen_ai.usage.cost_usd",
    "gen_ai.usage.total_cost",
    "gen_ai.cost.total_cost",
    "litellm.cost.total",
)
# of the older conventions, and of gateways: Cloudflare's, orq's and promptfoo's providers
_PROMPTS = ("gen_ai.prompt", "gen_ai.prompt_json", "gen_ai.input", "promptfoo.request.body")
_COMPLETIONS = (
    "gen_ai.completion",
    "gen_ai.completion_json",
    "gen_ai.output",
    "promptfoo.response.body",
)
_CONTEXTS = ("context", "context_str", "documents", "contexts")


def read_otel_genai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of the GenAI conventions."""
    attributes = span.attributes
    content = SpanContent(role=_role(span), convention="otel_genai")
    content.session = first_text(attributes, _SESSION)
    content.user = first_text(attributes, _USER)
    content.prompt_version = scalar_text(attributes.get("gen_ai.prompt.version"))
    content.error_type = scalar_text(attributes.get("error.type"))
    if content.role is SpanRole.EMBEDDING:
        return content
    fill_usage(content, attributes)
    content.cost_usd = parse_cost(first_value(attributes, _COST))
    wait_seconds = parse_number(attributes.get("gen_ai.response.time_to_first_chunk"))
    if wait_seconds is not None and 0 <= wait_seconds < 1e6 and span.start > 0:
        content.first_token_ns = span.start + int(wait_seconds * 1e9)
    if content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        _fill_retrieval(span, content)
    elif content.role is SpanRole.TOOL:
        content.documents = read_tool_documents(_tool_result(span))
    elif full or not defer_content(content):
        _fill_variables(attributes, content)
        _fill_messages(span, content)
    return content


def _tool_result(span: Span) -> Any:
    """Return the result of a tool: an attribute, else an event (Strands)."""
    result = span.attributes.get("gen_ai.tool.call.result")
    for event in span.events if result is None else ():
        if event.name == "gen_ai.choice":
            result = event.attributes.get("message")
        elif event.name == _DETAILS:
            messages = parse_nested_json(event.attributes.get("gen_ai.output.messages"))
            message = messages[-1] if isinstance(messages, list) and messages else None
            parts = message.get("parts") if isinstance(message, dict) else None
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict) and result is None:
                    result = first_value(part, ("response", "result"))
    return result


def fill_usage(content: SpanContent, attributes: Mapping[str, Any]) -> None:
    """Set model and tokens from the old and new names of the GenAI conventions."""
    content.model = first_text(attributes, _MODEL)
    content.input_tokens = first_count(
        attributes, ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    )
    content.output_tokens = first_count(
        attributes, ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    )


def _role(span: Span) -> SpanRole:
    attributes = span.attributes
    name = attributes.get("gen_ai.operation.name")
    if isinstance(name, str) and name:
        return key_table("otel_genai").roles.get(name.strip().lower(), SpanRole.OTHER)
    if _DOCUMENTS in attributes or "gen_ai.retrieval.query.text" in attributes:
        return SpanRole.RETRIEVER
    if any(key in attributes for key in ("gen_ai.usage.output_tokens", "gen_ai.output.messages")):
        return SpanRole.LLM
    for event in span.events:  # no operation name: before 1.30, or only a system is known
        if event.name in (_DETAILS, *_MESSAGE_LISTS, "gen_ai.choice", "gen_ai.content.completion"):
            return SpanRole.LLM
    has_model = any(key in attributes for key in _MODEL)
    return SpanRole.LLM if has_model and "embed" not in span.name.lower() else SpanRole.OTHER


def _fill_retrieval(span: Span, content: SpanContent) -> None:
    for key in _QUERIES:
        if content.query is None:
            content.query, gap = find_question(span.attributes.get(key))
            content.query_gap = content.query_gap or gap
    holders = (span.attributes, *map(_body, span.events))
    held = (holder[key] for holder in holders for key in (_DOCUMENTS, _RECORDS) if key in holder)
    fill_documents(content, next(held, None))


def _fill_variables(attributes: Mapping[str, Any], content: SpanContent) -> None:
    for name in _QUESTIONS:
        text = scalar_text(attributes.get(_VARIABLE + name))
        if text is not None and content.query is None:
            content.query, content.query_gap = find_question(text)
    for name in _CONTEXTS:
        text = scalar_text(attributes.get(_VARIABLE + name))
        if text is not None and content.context is None and not is_hidden(text):
            content.context = text


def _body(event: SpanEvent) -> Mapping[str, Any]:
    """Return an event's attributes, overlaid by a log event's body or `gen_ai.event.content`."""
    merged: dict[str, Any] = dict(event.attributes)
    for key in ("gen_ai.event.content", "event_body", "body"):
        inner = parse_nested_json(merged.get(key))
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            inner = inner[0]  # the choices of a call in one event: the first is the reply
        if isinstance(inner, dict):
            merged.update(inner)
        elif isinstance(inner, str) and "content" not in merged:
            merged["content"] = inner
    return merged


def _read_event(role: str, body: Mapping[str, Any]) -> list[ChatMessage]:
    """Read the message of an event, in a list that is empty if it holds none."""
    inner = parse_nested_json(body.get("message"))
    if isinstance(inner, str) and inner:
        return [ChatMessage(role, inner)]
    if role == "assistant" and inner in ("", []):  # Strands
        return [ChatMessage(role, empty=True)]
    source = inner if isinstance(inner, dict) else body
    content = parse_nested_json(source.get("content"))
    if isinstance(content, dict) and "parts" in content:  # of Google's own kit
        source = content
    elif isinstance(content, dict):
        source = {**source, "content": content}
    messages = read_messages([{**source, "role": source.get("role") or role}])
    for message in messages:
        message.tools = message.tools or bool(parse_nested_json(body.get("tool_calls")))
        message.text = message.text if message.text is None else _unquoted(message.text)
    return messages


def _unquoted(text: str) -> str:
    opened = parse_nested_json(text)
    if isinstance(opened, str):
        return opened
    answer, _ = find_answer(opened) if isinstance(opened, list) else (None, None)
    return answer or text


def _fill_messages(span: Span, content: SpanContent) -> None:
    prompts, replies = _messages_of(span)
    # the history is in the input: the question is the last message of the user
    text = last_text_of(prompts, "user")
    if content.query is None and text is not None:
        content.query, content.query_gap = with_gap(text, Reason.QUERY_TRUNCATED)
    if span.scope.startswith("io.quarkus") and "\n" in (content.query or ""):
        # all messages of the prompt, joined without their roles
        content.query, content.query_gap = None, Reason.PROMPT_ONLY
    reply = reply_of(replies)
    reply = reply or last_text_of(replies, "user") or reply
    if reply == "" and _stopped_for_tools(span):
        reply = None
    if reply is not None:
        content.answer, content.answer_gap = with_gap(reply, Reason.ANSWER_TRUNCATED)
    else:
        content.calls_tools = any(message.tools for message in replies) or _stopped_for_tools(span)
    if content.query is None and not prompts:
        content.query_gap = content.query_gap or _unreadable_gap(
            span.attributes.get("gen_ai.input.messages"), Reason.QUERY_TRUNCATED
        )
    given = parse_nested_json(span.attributes.get("gen_ai.output.messages"))
    if content.answer is None and given == []:
        ended = span.attributes.get("gen_ai.response.finish_reasons")
        content.answer = "" if ended and not _stopped_for_tools(span) else None
    elif content.answer is None and not replies:
        content.answer_gap = content.answer_gap or _unreadable_gap(
            span.attributes.get("gen_ai.output.messages"), Reason.ANSWER_TRUNCATED
        )


def _unreadable_gap(value: Any, truncated: Reason) -> Reason | None:
    if not isinstance(value, str):
        return None
    if is_hidden(value):
        return Reason.CONTENT_HIDDEN
    return truncated if looks_like_json(value) else None


def _stopped_for_tools(span: Span) -> bool:
    reasons = parse_nested_json(span.attributes.get("gen_ai.response.finish_reasons"))
    listed = reasons if isinstance(reasons, list) else [reasons]
    return bool(listed) and all(
        isinstance(reason, str) and reason.lower() in ("tool_calls", "tool_call", "tool_use")
        for reason in listed
    )


def _messages_of(span: Span) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Return the messages of the input and of the output: from attributes, else from events."""
    attributes = span.attributes
    prompts = read_messages(attributes.get("gen_ai.input.messages"))
    replies = read_messages(attributes.get("gen_ai.output.messages"))
    # a text, or a list of texts, in place of messages: Agent 365; or the body of a request or reply
    if not prompts:
        given = attributes.get("gen_ai.input.messages")
        prompts = _read_texts(given, "user") or _read_body(given, "user")
    if not replies:
        given = attributes.get("gen_ai.output.messages")
        replies = _read_body(given, "assistant") or _read_texts(given, "assistant")
    if prompts and replies:
        return prompts, replies
    old_prompts: list[ChatMessage] = []
    old_replies: list[ChatMessage] = []
    for event in sorted(span.events, key=_choice_index):
        if not event.name.startswith("gen_ai."):
            continue
        body = _body(event)
        if event.name in (_DETAILS, *_MESSAGE_LISTS):
            # Azure's kit has the messages in the content of an event of the attribute's name
            held = {event.name: body.get("gen_ai.event.content"), **body}
            prompts = prompts or read_messages(held.get("gen_ai.input.messages"))
            replies = replies or read_messages(held.get("gen_ai.output.messages"))
        elif event.name == "gen_ai.choice":
            old_replies += _read_event("assistant", body)
        elif event.name in _MESSAGES:
            old_prompts += _read_event(_MESSAGES[event.name], body)
        elif event.name == "gen_ai.content.prompt":
            old_prompts += _read_joined(body.get("gen_ai.prompt"), "user")
        elif event.name == "gen_ai.content.completion":
            old_replies += _read_joined(body.get("gen_ai.completion"), "assistant")
    if not old_replies and old_prompts and _role(span) is SpanRole.CHAIN:
        last = old_prompts[-1]  # of an agent's run, whose reply is no choice
        old_replies = [last] if last.role == "assistant" and last.text else []
    prompts = prompts or old_prompts or _read_joined(first_value(attributes, _PROMPTS), "user")
    completion = first_value(attributes, _COMPLETIONS)
    replies = replies or old_replies or _read_joined(completion, "assistant")
    return prompts, replies


def _read_texts(value: Any, role: str) -> list[ChatMessage]:
    """Read a text, or a list of texts, that stands where messages should."""
    opened = parse_nested_json(value)
    texts = opened if isinstance(opened, list) else [opened]
    if not all(isinstance(text, str) for text in texts):
        return []
    return [
        ChatMessage(role, text.strip())
        for text in texts
        if text.strip() and not looks_like_json(text) and not is_hidden(text)
    ]


def _read_body(value: Any, role: str) -> list[ChatMessage]:
    """Read the whole body of a request or reply that stands where messages should."""
    opened = parse_nested_json(value)
    if isinstance(opened, str):
        opened = read_event_lines(opened)
    if not isinstance(opened, dict | list) or not opened:
        return []
    if role == "user":
        text, _ = find_question(opened)
        return [ChatMessage(role, text)] if text else []
    text, _ = find_answer(opened)
    if text is not None:
        return [ChatMessage(role, text or None, empty=not text)]
    return [ChatMessage(role, tools=True)] if asks_tools(opened) else []


def _choice_index(event: SpanEvent) -> float:
    """Return the index of a choice, so that the first is read first, 0 for any other event."""
    index = _body(event).get("index") if event.name == "gen_ai.choice" else 0
    return parse_number(index) or 0


def _read_joined(value: Any, role: str) -> list[ChatMessage]:
    """Read a prompt or completion in one text: JSON messages, or lines that begin `user: `."""
    messages = read_messages(value)
    if messages or value is None:
        return messages
    text, _ = find_question(value) if role == "user" else find_answer(value)
    if text is None:
        return []
    if role == "user" and "user: " in text:
        text = text.rpartition("user: ")[2].strip() or text
    return [ChatMessage(role, text.strip(), empty=role == "assistant" and not text.strip())]
