"""Frameworks with their own attributes: Google ADK, Logfire, Haystack, Spring AI and Vercel AI SDK.

`key_tables.yaml` has the sources of each and what to beware of.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS, read_document
from ragmeter.ingest.conventions.key_tables import (
    asks_tools_only,
    fill_content,
    fill_documents,
    fill_reply,
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
    first_text,
    is_hidden,
    parse_count,
    parse_json_or_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

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
        content.query_gap = content.answer_gap = Reason.CONTENT_HIDDEN
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
            RetrievedDocument(id=identity, text=text, gap=None if text else Reason.PASSAGES_ID_ONLY)
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
        if content.input_tokens is None:
            fill_tokens(content, response.get("usage"))


# searched in a pipeline's outputs before anything else
_HAYSTACK_REPLIES = ("answers", "replies", "reply", "answer", "last_message")
_HAYSTACK_QUESTIONS = frozenset(
    ("query", "question", "messages", "text", "prompt", "input", "user_input")
)
_MAX_COMPONENTS = 64  # of one pipeline's inputs or outputs
_SPRING_AI_QUERY = "db.vector.query.content"
_SPRING_AI_READS = frozenset({"query", "search", "similarity_search", ""})
_MAX_ITEMS = 1_000  # of one joined list
_VERCEL_AI_FIRST_CHUNK = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
_VERCEL_AI_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def read_haystack(span: Span, full: bool = True) -> SpanContent:
    """Read a component or a pipeline of Haystack."""
    attributes = span.attributes
    content = SpanContent(convention="haystack")
    kind = (scalar_text(attributes.get("haystack.component.type")) or "").lower()
    if kind:
        endings = key_table("haystack").roles.items()
        roles = (role for ending, role in endings if kind.endswith(ending))
        content.role = next(roles, SpanRole.OTHER)
    else:
        content.role = SpanRole.CHAIN
    # the output of a model call holds its model and tokens
    if not full and content.role is SpanRole.CHAIN and defer_content(content):
        return content
    input_key = "haystack.component.input" if kind else "haystack.pipeline.input_data"
    output_key = "haystack.component.output" if kind else "haystack.pipeline.output_data"
    input_value = parse_json_or_literal(attributes.get(input_key))
    output_value = parse_json_or_literal(attributes.get(output_key))
    if not kind:
        _fill_haystack_question(content, input_value)
        _fill_haystack_answer(content, output_value)
    elif content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        fill_content(
            content,
            input_value.get("query") if isinstance(input_value, dict) else None,
            output_value.get("documents") if isinstance(output_value, dict) else output_value,
        )
    elif content.role is SpanRole.LLM:
        fill_content(content, input_value, None)
        _fill_haystack_call(content, output_value)
    elif content.role in (SpanRole.CHAIN, SpanRole.TOOL):
        fill_content(content, input_value, output_value)
    return content


def _fill_haystack_call(content: SpanContent, output_value: Any) -> None:
    if not isinstance(output_value, dict):
        content.answer, content.answer_gap = find_answer(output_value)
        return
    replies = output_value.get("replies")
    fill_reply(content, replies)
    meta = output_value.get("meta")
    if not meta and isinstance(replies, list) and replies and isinstance(replies[-1], dict):
        meta = replies[-1].get("meta") or replies[-1].get("_meta")
    if isinstance(meta, list):
        meta = meta[0] if meta else None
    if not isinstance(meta, dict):
        return
    content.model = scalar_text(meta.get("model"))
    fill_tokens(content, meta.get("usage"))


def _fill_haystack_question(content: SpanContent, input_value: Any) -> None:
    if not isinstance(input_value, dict):
        return
    # the retriever's query before a prompt builder's variables and a router's text
    components = list(input_value.items())[:_MAX_COMPONENTS]
    components.sort(key=lambda component: "retriev" not in str(component[0]).lower())
    for _, inputs in components:
        if isinstance(inputs, dict):
            questions = {k: v for k, v in inputs.items() if k in _HAYSTACK_QUESTIONS}
            content.query, content.query_gap = (
                find_question(questions) if questions else (None, None)
            )
        if content.query is not None:
            return
    content.query, content.query_gap = find_question(input_value)


def _fill_haystack_answer(content: SpanContent, output_value: Any) -> None:
    if not isinstance(output_value, dict):
        return
    for key in _HAYSTACK_REPLIES:
        for outputs in list(output_value.values())[:_MAX_COMPONENTS]:
            if isinstance(outputs, dict) and outputs.get(key):
                content.answer, content.answer_gap = _find_generated_answer(outputs[key])
                if content.answer is not None:
                    return
    if any(key in output_value for key in _HAYSTACK_REPLIES):
        content.answer, content.answer_gap = find_answer(output_value)


def _find_generated_answer(value: Any) -> tuple[str | None, Reason | None]:
    """Find a reply, also in a `GeneratedAnswer`: {"init_parameters": {"data": ...}}."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = value[0].get("init_parameters", value[0])
        if isinstance(inner, dict) and isinstance(inner.get("data"), str):
            return find_answer(inner["data"])
    return find_answer(value)


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
        wait_ms = parse_number(first_value(attributes, _VERCEL_AI_FIRST_CHUNK))
        if wait_ms is not None and 0 <= wait_ms < 1e9 and span.start:
            content.first_token_ns = span.start + round(wait_ms * 1e6)
    elif content.role is SpanRole.RERANKER:
        content.documents, content.documents_gap = _reranked_documents(span), None
        if content.documents is None and operation == "ai.rerank":
            content.role = SpanRole.OTHER  # the ranking is on the inner span
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
