"""Langfuse SDK (version 3 and later) and other senders to its OTLP endpoint.

Source: langfuse/langfuse-python `langfuse/_client/attributes.py` (attribute names and that values
are JSON text, strings as they are), langfuse/langfuse 6275144 (the mapper of its ingest; the
sample in tests/data/otlp). Traps:
- `langfuse.trace.*`, `session.id` and `user.id` may sit on any span, also on other
  instrumentations' ones: they say nothing of that span's role.
- `langfuse.trace.input` on a child is the trace's, not the child's: the span's own comes first,
  except on the root, where the trace's is what the application chose to show.
- The type `span` is the default of every decorated function, so many real retrievals are one:
  taken for a retriever where the name says so and the output is a list of documents.
- Model usage may have any keys; `input` is without the cached part, which is in `input_*`.
- Mappers compare the type in lower case only; senders write it in any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ragmeter.ingest.conventions.documents import read_documents
from ragmeter.ingest.conventions.key_tables import KeyTable, add_tag, fill_content, read_by_keys
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole, may_defer_content
from ragmeter.ingest.conventions.values import (
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_OBSERVATION = "langfuse.observation."
_TRACE = "langfuse.trace."

_LANGFUSE_KEYS = KeyTable(
    convention="langfuse",
    kind=(_OBSERVATION + "type",),
    roles={
        "generation": SpanRole.LLM,
        "embedding": SpanRole.EMBEDDING,
        "retriever": SpanRole.RETRIEVER,
        "tool": SpanRole.TOOL,
        "span": SpanRole.CHAIN,
        "chain": SpanRole.CHAIN,
        "agent": SpanRole.CHAIN,
        "evaluator": SpanRole.EVALUATOR,
        "guardrail": SpanRole.TOOL,  # what a model says in there is no answer
        "event": SpanRole.OTHER,
    },
    query=(_OBSERVATION + "input",),
    answer=(_OBSERVATION + "output",),
    model=(_OBSERVATION + "model.name",),
    session=("session.id", "langfuse.session.id"),
    user=("user.id", "langfuse.user.id"),
    tags={
        "langfuse.environment": "environment",
        "langfuse.release": "release",
        "langfuse.version": "version",
    },
    tag_prefixes=(_TRACE + "metadata.",),
)

# each is enough; looked up one by one, as a span may have hundreds of attributes
_MARKS = (
    _OBSERVATION + "type",
    _OBSERVATION + "input",
    _OBSERVATION + "output",
    _OBSERVATION + "model.name",
    _TRACE + "input",
    _TRACE + "output",
    _TRACE + "name",
    _TRACE + "tags",
    "langfuse.environment",
    "langfuse.session.id",
    "langfuse.user.id",
)

# what a function is called that retrieves; shared with other products that have no such type
_RETRIEVER_NAME = re.compile(
    r"retriev|(?:vector|similarity|semantic|hybrid|document|doc|knowledge|kb|context)[\w .-]{0,12}"
    r"(?:search|lookup|fetch)|search[\w .-]{0,12}(?:docs|documents|index|passages|chunks)",
    re.IGNORECASE,
)


def matches_langfuse(span: Span) -> bool:
    attributes = span.attributes
    return span.scope == "langfuse-sdk" or not attributes.keys().isdisjoint(_MARKS)


def read_langfuse(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    content = content or _RETRIEVER_NAME.search(span.name) is not None  # it may be a retriever
    reading = read_by_keys(_LANGFUSE_KEYS, attributes, content)
    if reading.role is SpanRole.OTHER and _OBSERVATION + "type" not in attributes:
        if _OBSERVATION + "model.name" in attributes:  # Langfuse takes such for a generation too
            reading.role = SpanRole.LLM
        elif _OBSERVATION + "input" in attributes or _OBSERVATION + "output" in attributes:
            reading.role = SpanRole.CHAIN
        if content or not may_defer_content(reading):
            fill_content(
                reading,
                attributes.get(_OBSERVATION + "input"),
                attributes.get(_OBSERVATION + "output"),
            )
    made = attributes.get(_OBSERVATION + "output")
    if reading.role is SpanRole.CHAIN and _RETRIEVER_NAME.search(span.name):
        opened = parse_nested_json(made)
        found = read_documents(opened) if isinstance(opened, list) else None
        if found and any(one.text for one in found):
            reading.role = SpanRole.RETRIEVER
            reading.documents, reading.answer, reading.answer_gap = found, None, None
    _of_trace(span, reading, content)
    for key in ("langfuse.environment", "langfuse.release"):
        if key not in attributes:  # the SDK says it once, of the resource
            add_tag(reading, key.removeprefix("langfuse."), span.resource.get(key))
    usage = parse_nested_json(attributes.get(_OBSERVATION + "usage_details"))
    if isinstance(usage, dict):
        reading.input_tokens = _tokens(usage, ("input_tokens", "prompt_tokens", "promptTokens"))
        reading.output_tokens = _tokens(
            usage, ("output_tokens", "completion_tokens", "completionTokens")
        )
        if "input" in usage:
            reading.input_tokens = _sum(usage, "input")
        if "output" in usage:
            reading.output_tokens = _sum(usage, "output")
    reading.cost_usd = _cost(parse_nested_json(attributes.get(_OBSERVATION + "cost_details")))
    reading.first_token_ns = iso_nanoseconds(
        parse_nested_json(attributes.get(_OBSERVATION + "completion_start_time"))
    )
    name = scalar_text(attributes.get(_OBSERVATION + "prompt.name"))
    version = scalar_text(attributes.get(_OBSERVATION + "prompt.version"))
    if name or version:
        reading.prompt_version = f"{name}@{version}" if name and version else name or version
    if str(attributes.get(_OBSERVATION + "level", "")).upper() == "ERROR":
        reading.failed = True
        reading.error = scalar_text(attributes.get(_OBSERVATION + "status_message"))
    tags = parse_nested_json(attributes.get(_TRACE + "tags"))
    if isinstance(tags, list):
        for one in tags[:32]:
            if isinstance(one, str):
                add_tag(reading, f"tag.{one}", "true")
    return reading


def _of_trace(span: Span, reading: SpanContent, content: bool) -> None:
    """The trace's input and output, where they are this span's to say."""
    given, made = span.attributes.get(_TRACE + "input"), span.attributes.get(_TRACE + "output")
    if given is None and made is None:
        return
    if reading.role not in (SpanRole.CHAIN, SpanRole.OTHER, SpanRole.LLM):
        return
    root = not span.parent_id
    if not content and may_defer_content(reading):
        if root and reading.role is SpanRole.OTHER:
            reading.role = SpanRole.CHAIN
        return
    whole_trace = SpanContent(role=SpanRole.CHAIN)
    fill_content(whole_trace, given, made)
    if whole_trace.query is not None and (root or reading.query is None):
        reading.query, reading.query_gap = whole_trace.query, whole_trace.query_gap
    if whole_trace.answer is not None and (root or reading.answer is None):
        reading.answer, reading.answer_gap = whole_trace.answer, whole_trace.answer_gap
        reading.calls_tools = False
    if root and reading.role is SpanRole.OTHER:
        reading.role = SpanRole.CHAIN


def _tokens(usage: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((n for n in (parse_count(usage.get(key)) for key in keys) if n is not None), None)


def _sum(usage: Mapping[str, Any], name: str) -> int | None:
    """`input` and its parts `input_cached_tokens`, ...: the SDK takes the parts out of the sum."""
    found = [
        n
        for key, value in list(usage.items())[:64]
        if (key == name or (isinstance(key, str) and key.startswith(name + "_")))
        and (n := parse_count(value)) is not None
    ]
    return sum(found) if found else None


def _cost(details: Any) -> float | None:
    if not isinstance(details, dict):
        return None
    total = parse_number(details.get("total"))
    if total is None:
        parts = [n for v in list(details.values())[:64] if (n := parse_number(v)) is not None]
        total = sum(parts) if parts else None
    return total if total is not None and total >= 0 else None


def iso_nanoseconds(value: Any) -> int | None:
    """Unix nanoseconds of an ISO time; without a zone: UTC."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        when = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = (when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return round(seconds * 1e6) * 1000 if seconds > 0 else None
