"""Google's Agent Development Kit; `key_tables.yaml` has the sources and what to beware of."""

from __future__ import annotations

from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS
from ragmeter.ingest.conventions.key_tables import (
    fill_content,
    key_table,
    read_by_table,
)
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.values import (
    first_text,
    parse_count,
    parse_nested_json,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason
from ragmeter.trace import read_finish_reason

_ADK_REQUEST = "gcp.vertex.agent.llm_request"
_ADK_RESPONSE = "gcp.vertex.agent.llm_response"
_ENDED_EMPTY = ("stop", "length", "content_filter")
_ADK_CHUNKS = ("retrieved_context", "web", "maps")


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
        error_code = scalar_text(response.get("error_code"))
        if error_code is not None and read_finish_reason(error_code) in _ENDED_EMPTY:
            # the kit calls a reply without content by why it ended
            content.answer = "" if content.answer is None else content.answer
        elif error_code is not None:
            content.failed = True
            content.error_type = error_code
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
