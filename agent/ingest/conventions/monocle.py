"""Monocle (monocle_apptrace 0.2 to 0.5).

Source: monocle2ai/monocle 850a609 (the traces in its integration tests; `metamodel/*/_helper.py`,
`common/constants.py`). Traps:
- Content is in span events: `data.input`, `data.output` and `metadata` (tokens).
- Retrieved texts are joined by a blank into ONE string and cut at 100 characters plus "...": one
  document, marked as truncated; never fit for grounding.
- A span of type `retrieval` may be an embedding call whose output is a vector.
- Messages are a list of JSON texts `{"user": "..."}` or of Python's text form `{'user': '...'}`;
  prompts may be cut as documents are.
- `inference.modelapi` and `embedding.modelapi` are the same call again, without content.
- On a failure the output is the exception's message, with `error_code` beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from agent.ingest.conventions.keyed import Keys, read_keyed
from agent.ingest.conventions.reading import Document, Gap, Reading, Role
from agent.ingest.conventions.texts import (
    answer_in,
    cut_off,
    is_embedding,
    open_json,
    question_in,
    text_of,
    whole,
)
from agent.ingest.spans import Span

__all__ = ["literal", "matches", "read"]

KEYS = Keys(
    convention="monocle",
    kind=("span.type",),
    roles={
        "retrieval": Role.RETRIEVER,
        "inference": Role.LLM,
        "inference.framework": Role.LLM,
        "inference.modelapi": Role.OTHER,
        "embedding": Role.EMBEDDING,
        "embedding.modelapi": Role.EMBEDDING,
        "workflow": Role.CHAIN,
        "generic": Role.CHAIN,
        "agentic.turn": Role.CHAIN,
        "agentic.request": Role.CHAIN,
        "agentic.invocation": Role.CHAIN,
        "agentic.delegation": Role.CHAIN,
        "agentic.tool.invocation": Role.TOOL,
        "agentic.mcp.invocation": Role.TOOL,
    },
    session=("scope.agentic.session", "scope.session_id", "scope.session.id"),
    tags={"workflow.name": "workflow"},
)
ASKED = ("user", "human")
REPLIED = ("assistant", "ai", "AIMessage")
ENTITIES = 8  # of one span; real ones have 4
MAX_LITERAL = 100_000  # characters; Python's parser is slow and deep, so it sees no more


def matches(span: Span) -> bool:
    attributes = span.attributes
    return "span.type" in attributes and (
        "monocle_apptrace.version" in attributes
        or "entity.1.type" in attributes
        or "workflow.name" in attributes
        or any(event.name in ("data.input", "data.output") for event in span.events)
    )


def read(span: Span, content: bool = True) -> Reading:
    """Always whole: what was said tells what the span is and whether it failed."""
    attributes = span.attributes
    reading = read_keyed(KEYS, attributes)
    events: dict[str, Mapping[str, Any]] = {event.name: event.attributes for event in span.events}
    given, made = events.get("data.input", {}), events.get("data.output", {})
    usage = events.get("metadata", {})
    query, query_gap = _said(given, "input", ASKED, Gap.QUERY_TRUNCATED)
    answer, answer_gap = _said(made, "response", REPLIED, Gap.ANSWER_TRUNCATED)
    kinds = [text_of(attributes.get(f"entity.{n}.type")) or "" for n in range(1, ENTITIES + 1)]
    if reading.role is Role.RETRIEVER:
        raw = made.get("response")
        if is_embedding(raw) or (
            not any(kind.startswith("vectorstore") for kind in kinds)
            and any(kind.startswith("model.embedding") for kind in kinds)
        ):
            reading.role = Role.EMBEDDING
            return reading
        reading.query, reading.query_gap = query, query_gap
        text = text_of(raw)
        if text is not None:
            gap = Gap.PASSAGES_TRUNCATED if cut_off(text) else None
            reading.documents, reading.documents_gap = [Document(text=text, gap=gap)], gap
            reading.context = None if gap else text
    elif reading.role in (Role.LLM, Role.CHAIN, Role.TOOL):
        reading.query, reading.query_gap = query, query_gap
        reading.answer, reading.answer_gap = answer, answer_gap
        reading.input_tokens = whole(usage.get("prompt_tokens"))
        reading.output_tokens = whole(usage.get("completion_tokens"))
        reading.calls_tools = str(usage.get("finish_type", "")).lower() == "tool_call"
    for n, kind in enumerate(kinds, start=1):
        if kind.startswith("model.llm"):
            reading.model = text_of(attributes.get(f"entity.{n}.name"))
    code = text_of(made.get("error_code"))
    if code is not None and code.lower() not in ("success", "ok", "200"):
        reading.failed, reading.error_type = True, code
        reading.error = answer
        reading.answer, reading.answer_gap = None, None
    return reading


def _said(
    event: Mapping[str, Any], key: str, roles: tuple[str, ...], truncated: Gap
) -> tuple[str | None, Gap | None]:
    """What one side said: at `key`, or at the name of its role (version 0.2)."""
    value: Any = event.get(key)
    if value is None:
        value = next((event[role] for role in roles if event.get(role)), None)
    value = open_json(value)
    if isinstance(value, str):
        value = literal(value)
    texts = []
    for item in value[-64:] if isinstance(value, list) else [value]:
        item = open_json(item)
        if isinstance(item, str):
            item = literal(item)
        if isinstance(item, dict):
            texts += [text for role in roles if (text := text_of(item.get(role)))]
        elif isinstance(item, str):
            texts.append(item)
    if texts:
        find = question_in if truncated is Gap.QUERY_TRUNCATED else answer_in
        text, gap = find(texts[-1])
        # prompts are cut at any length: "Use the following pieces of retrieved ... "
        if text is not None and find is question_in and text.rstrip().endswith("..."):
            gap = truncated
        return text, gap
    return None, None


def literal(text: str) -> Any:
    """What Python's text form of a dict or list holds; other text as it is."""
    head = text[:16].lstrip()
    if not head.startswith(("{'", '{"', "['", "[{")) or len(text) > MAX_LITERAL:
        return text
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
