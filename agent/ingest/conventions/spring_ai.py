"""Spring AI (1.0 and later; milestones too), through Micrometer.

Source: spring-projects/spring-ai fd3fd6e, `DefaultVectorStoreObservationConvention`,
`VectorStoreQueryResponseObservationFilter` (milestones), the reference manual's page on
observability. Traps:
- All values are text, numbers too ("11").
- The retriever is the vector store span: `db.vector.query.content` and, where switched on,
  `db.vector.query.response.documents`. There is no other retrieval span above it.
- Lists are joined without escaping: `["a", "b"]` is JSON only while no text holds a quote or a
  line break. Where it is none, it is split at `", "`.
- From 1.0 on prompts, replies and documents go to the application's log and not to the span: then
  the documents are not captured, which is not the same as none found.
- The conversation id of an application that sets none is `default`: no session.
"""

from __future__ import annotations

from typing import Any

from agent.ingest.conventions.documents import documents_in
from agent.ingest.conventions.keyed import Keys, read_keyed
from agent.ingest.conventions.reading import Document, Gap, Reading, Role, leave_out
from agent.ingest.conventions.texts import hidden, messages_in, open_json, text_of
from agent.ingest.spans import Span

__all__ = ["matches", "read", "unjoined"]

KEYS = Keys(
    convention="spring_ai",
    kind=("spring.ai.kind",),
    roles={
        "chat_client": Role.CHAIN,
        "advisor": Role.CHAIN,
        "tool_call": Role.TOOL,
        "vector_store": Role.RETRIEVER,
    },
    query=(
        "db.vector.query.content",
        "spring.ai.chat.client.user.text",
        "spring.ai.tool.call.arguments",
    ),
    answer=("spring.ai.tool.call.result",),
    session=("spring.ai.chat.client.conversation.id",),
    tags={"db.collection.name": "collection"},
)
DOCUMENTS = "db.vector.query.response.documents"
READS = frozenset({"query", "search", "similarity_search", ""})
MAX_ITEMS = 1_000  # of one joined list


def matches(span: Span) -> bool:
    attributes = span.attributes
    return (
        "spring.ai.kind" in attributes
        or "db.vector.query.content" in attributes
        or (
            span.scope in ("org.springframework.boot", "org.springframework.ai")
            and "gen_ai.operation.name" in attributes
        )
    )


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    reading = read_keyed(KEYS, attributes, content)
    if reading.role is Role.OTHER and "db.vector.query.content" in attributes:
        reading = read_keyed(KEYS, {**attributes, "spring.ai.kind": "vector_store"})
    if reading.session == "default":
        reading.session = None
    if reading.role is Role.RETRIEVER:
        operation = (text_of(attributes.get("db.operation.name")) or "").lower()
        if operation not in READS:  # add, delete: index building
            return Reading(role=Role.VECTOR_DB, convention=KEYS.convention)
        _documents(reading, attributes.get(DOCUMENTS))
        return reading
    if not content and leave_out(reading):
        return reading
    prompt, completion = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    # the last message of a prompt is the user's
    if reading.query is None and prompt is not None:
        reading.query = _last(prompt, "user")
    if reading.answer is None and completion is not None:
        reading.answer = _last(completion, "assistant")
    return reading


def _documents(reading: Reading, value: Any) -> None:
    if value is None:
        return
    if hidden(value):
        reading.documents_gap = Gap.HIDDEN
        return
    opened = open_json(value)
    if not isinstance(opened, str):
        reading.documents = documents_in(opened)
        return
    reading.documents = [Document(text=text) for text in unjoined(opened)]


def _last(value: Any, role: str) -> str | None:
    opened = open_json(value)
    if not isinstance(opened, str):
        turns = messages_in(opened)
        if turns:
            return next((turn.text for turn in reversed(turns) if turn.role == role), None)
        if isinstance(opened, list):
            return next((text for x in reversed(opened) if (text := text_of(x))), None)
        return None
    texts = unjoined(opened)
    return texts[-1] if texts else None


def unjoined(text: str) -> list[str]:
    """The items of `["a", "b"]` whose quotes are not escaped; other text is one item."""
    text = text.strip()
    if text.startswith('["') and text.endswith('"]'):
        items = text[2:-2].split('", "', MAX_ITEMS - 1)
        return [item for item in items if item.strip()]
    return [text] if text and text != "[]" else []
