"""Langfuse; `key_tables.yaml` has the sources and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    RETRIEVER_NAME,
    add_tag,
    fill_content,
    fill_tokens,
    first_output,
    first_value,
    key_table,
    read_by_table,
    recognise_retrieval,
)
from ragmeter.ingest.conventions.span_content import (
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.values import (
    first_count,
    parse_cost,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_OBSERVATION = "langfuse.observation."
_TRACE = "langfuse.trace."
# tokens of the input that the provider's cache had, or was given
_CACHE_READS = (
    "input_cached_tokens",
    "input_cache_read",
    "input_cache_read_tokens",
    "cache_read_input_tokens",
)
_CACHED_APART = ("cache_read_input_tokens", "cache_creation_input_tokens")
_MAX_KEYS = 64  # of usage and cost details that are read
_MAX_TAGS = 32  # of one trace


def read_langfuse(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Langfuse."""
    attributes = span.attributes
    full = full or RETRIEVER_NAME.search(span.name) is not None  # it may be a retriever
    table = key_table("langfuse")
    content = read_by_table(table, attributes, full)
    input_value = first_value(attributes, table.query)
    output_value = first_value(attributes, table.answer)
    if content.role is SpanRole.OTHER and _OBSERVATION + "type" not in attributes:
        if _OBSERVATION + "model.name" in attributes:  # Langfuse takes it for a generation too
            content.role = SpanRole.LLM
        elif input_value is not None or output_value is not None:
            content.role = SpanRole.CHAIN
        if full or not defer_content(content):
            fill_content(content, input_value, first_output(attributes, table.answer, content.role))
    recognise_retrieval(span, content, output_value)
    _fill_from_trace(span, content, full)
    for key in ("langfuse.environment", "langfuse.release"):
        if key not in attributes:  # the SDK writes it once, on the resource
            add_tag(content, key.removeprefix("langfuse."), span.resource.get(key))
    _fill_usage(content, parse_nested_json(attributes.get(_OBSERVATION + "usage_details")))
    content.cost_usd = _cost(parse_nested_json(attributes.get(_OBSERVATION + "cost_details")))
    content.first_token_ns = parse_iso_nanoseconds(
        parse_nested_json(attributes.get(_OBSERVATION + "completion_start_time"))
    )
    name = scalar_text(attributes.get(_OBSERVATION + "prompt.name"))
    version = scalar_text(attributes.get(_OBSERVATION + "prompt.version"))
    if name or version:
        content.prompt_version = f"{name}@{version}" if name and version else name or version
    if str(attributes.get(_OBSERVATION + "level", "")).upper() == "ERROR":
        content.failed = True
        content.error = scalar_text(attributes.get(_OBSERVATION + "status_message"))
    tags = parse_nested_json(attributes.get(_TRACE + "tags"))
    for tag in tags[:_MAX_TAGS] if isinstance(tags, list) else ():
        if isinstance(tag, str):
            add_tag(content, f"tag.{tag}", "true")
    return content


def parse_iso_nanoseconds(value: Any) -> int | None:
    """Return the Unix nanoseconds of an ISO time, which is in UTC if it names no zone."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    seconds = (time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return round(seconds * 1e6) * 1000 if seconds > 0 else None


def _fill_from_trace(span: Span, content: SpanContent, full: bool) -> None:
    """Use the trace's input and output where they describe this span."""
    input_value = span.attributes.get(_TRACE + "input")
    output_value = span.attributes.get(_TRACE + "output")
    if input_value is None and output_value is None:
        return
    if content.role not in (SpanRole.CHAIN, SpanRole.OTHER, SpanRole.LLM):
        return
    root = not span.parent_id
    if full or not defer_content(content):
        trace = SpanContent(role=SpanRole.CHAIN)
        fill_content(trace, input_value, output_value)
        if trace.query is not None and (root or content.query is None):
            content.query = trace.query
            content.query_gap = trace.query_gap
        if trace.answer is not None and (content.answer is None or (root and trace.answer)):
            content.answer = trace.answer
            content.answer_gap = trace.answer_gap
            content.calls_tools = False
    if root and content.role is SpanRole.OTHER:
        content.role = SpanRole.CHAIN


def _fill_usage(content: SpanContent, usage: Any) -> None:
    if not isinstance(usage, dict):
        return
    fill_tokens(content, usage)
    if "input" in usage:
        content.input_tokens = _sum(usage, "input", _CACHED_APART)
        content.cached_input_tokens = first_count(usage, _CACHE_READS)
    if "output" in usage:
        content.output_tokens = _sum(usage, "output")


def _sum(usage: Mapping[str, Any], name: str, apart: Sequence[str] = ()) -> int | None:
    """Add up `input` and its parts `input_cached_tokens`, ..., which the SDK takes out of it.

    `apart` are parts that are named otherwise.
    """
    counts = [
        n
        for key, value in list(usage.items())[:_MAX_KEYS]
        if isinstance(key, str)
        and (key == name or key in apart or key.startswith(name + "_"))
        and (n := parse_count(value)) is not None
    ]
    return sum(counts) if counts else None


def _cost(details: Any) -> float | None:
    if not isinstance(details, dict):
        return None
    total = parse_number(details.get("total"))
    if total is None:
        values = list(details.values())[:_MAX_KEYS]
        parts = [n for value in values if (n := parse_number(value)) is not None]
        total = sum(parts) if parts else None
    return parse_cost(total)
