"""Google's Agent Development Kit (`gcp.vertex.agent.*`), Python 1.x.

Source: google/adk-python `src/google/adk/telemetry/tracing.py` and `_experimental_semconv.py`;
google-genai's `GroundingMetadata`. Traps:
- Tool spans carry `llm_request` and `llm_response` too, always "{}".
- With content switched off both are empty objects: hidden, not empty.
- Replies have the role `model`; a tool's result is a message of the role `user`.
- Grounding by Vertex AI Search or Google Search is inside the reply: `grounding_metadata` holds
  the chunks and which stretch of the answer they support, in BYTES of UTF-8, not characters.
  Only `retrieved_context` has text; a web chunk has an address and a title.
"""

from __future__ import annotations

from typing import Any

from agent.ingest.conventions.keyed import Keys, fill_content, read_keyed
from agent.ingest.conventions.reading import Document, Gap, Reading, Role
from agent.ingest.conventions.texts import open_json, text_of, whole
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

REQUEST = "gcp.vertex.agent.llm_request"
RESPONSE = "gcp.vertex.agent.llm_response"
KEYS = Keys(
    convention="google_adk",
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=("gcp.vertex.agent.session_id", "gen_ai.conversation.id"),
    user=("gcp.vertex.agent.user_id",),
    tags={"gen_ai.agent.name": "agent"},
)
MARKS = (
    REQUEST,
    RESPONSE,
    "gcp.vertex.agent.tool_response",
    "gcp.vertex.agent.session_id",
    "gcp.vertex.agent.invocation_id",
)
MAX_CHUNKS = 1_000


def matches(span: Span) -> bool:
    return span.scope == "gcp.vertex.agent" or not span.attributes.keys().isdisjoint(MARKS)


def read(span: Span, content: bool = True) -> Reading:
    """Always whole: a reply may hold documents and says whether it failed."""
    attributes = span.attributes
    reading = read_keyed(KEYS, attributes)
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool" or "gcp.vertex.agent.tool_response" in attributes:
        reading.role = Role.TOOL
        fill_content(
            reading,
            attributes.get("gcp.vertex.agent.tool_call_args"),
            attributes.get("gcp.vertex.agent.tool_response"),
        )
        return reading
    if REQUEST not in attributes and RESPONSE not in attributes:
        known = operation == "invoke_agent" or span.name in ("invocation", "agent_run")
        reading.role = Role.CHAIN if known or span.name.startswith("invoke_agent") else Role.OTHER
        return reading
    reading.role = Role.LLM
    request, response = open_json(attributes.get(REQUEST)), open_json(attributes.get(RESPONSE))
    if request in ({}, "", None) and response in ({}, "", None):
        reading.query_gap = reading.answer_gap = Gap.HIDDEN
        return reading
    if isinstance(request, dict):
        reading.model = reading.model or text_of(request.get("model"))
        reading.query = _asked(request.get("contents"))
    if isinstance(response, dict):
        reply = response.get("content")
        parts = reply.get("parts") if isinstance(reply, dict) else None
        reading.answer = _text(parts)
        reading.calls_tools = reading.answer is None and _has(parts, "function_call")
        if response.get("error_code") is not None:
            reading.failed = True
            reading.error_type = text_of(response.get("error_code"))
            reading.error = text_of(response.get("error_message"))
        _grounding(reading, response.get("grounding_metadata"))
    return reading


def _text(parts: Any) -> str | None:
    if not isinstance(parts, list):
        return None
    texts = [
        part["text"]
        for part in parts[:MAX_CHUNKS]
        if isinstance(part, dict) and isinstance(part.get("text"), str) and not part.get("thought")
    ]
    return text_of("".join(texts))


def _has(parts: Any, key: str) -> bool:
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get(key) for part in parts[:MAX_CHUNKS]
    )


def _asked(contents: Any) -> str | None:
    """The last text that a user wrote; a tool's result has the user's role but no text."""
    if not isinstance(contents, list):
        return None
    for content in reversed(contents[-MAX_CHUNKS:]):
        if isinstance(content, dict) and content.get("role", "user") == "user":
            text = _text(content.get("parts"))
            if text is not None:
                return text
    return None


def _grounding(reading: Reading, grounding: Any) -> None:
    if not isinstance(grounding, dict) or not isinstance(grounding.get("grounding_chunks"), list):
        return
    documents = []
    for n, chunk in enumerate(grounding["grounding_chunks"][:MAX_CHUNKS]):
        inner = next((x for x in _inner(chunk) if isinstance(x, dict)), {})
        text = text_of(inner.get("text"))
        identity = text_of(inner.get("uri")) or text_of(inner.get("title")) or f"chunk-{n}"
        documents.append(Document(id=identity, text=text, gap=None if text else Gap.ID_ONLY))
    if not documents:
        return
    reading.documents = documents
    supports = grounding.get("grounding_supports")
    answer = (reading.answer or "").encode()
    for support in supports[:MAX_CHUNKS] if isinstance(supports, list) else []:
        if not isinstance(support, dict):
            continue
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        start, end = whole(segment.get("start_index", 0)), whole(segment.get("end_index"))
        numbers = support.get("grounding_chunk_indices")
        ids = [
            documents[at].id
            for n in (numbers[:MAX_CHUNKS] if isinstance(numbers, list) else [])
            if (at := whole(n)) is not None and at < len(documents)
        ]
        if ids and start is not None and end is not None and start < end <= len(answer):
            first = len(answer[:start].decode(errors="ignore"))
            last = len(answer[:end].decode(errors="ignore"))
            reading.citations.append((first, last, ids))


def _inner(chunk: Any) -> list[Any]:
    if not isinstance(chunk, dict):
        return []
    return [chunk.get(key) for key in ("retrieved_context", "web", "maps")]
