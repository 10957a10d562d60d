"""Tell spans in another form than OTLP by what only that form has, to name it and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_SEARCHED = 4_096  # bytes of a body that is no single JSON value
# The SDK's exporter for a console prints one object after another.
_CONSOLE = re.compile(rb'"context":\s*\{\s*"trace_id":\s*"0x[0-9a-f]{32}"')

_NATIVE_FIELDS = frozenset(("service", "query", "answer", "passages"))
_EXPORT = "send it by an OTLP exporter, or record it by the Collector's file exporter"
_NATIVE = "a native trace: those go to /v1/rag/traces, and files to `ragmeter score`"
_CONSOLE_FORM = f"what the SDK's ConsoleSpanExporter prints: {_EXPORT}"


def _is_jaeger(item: Mapping[str, Any]) -> bool:
    listed = item.get("data")
    inner = listed[0] if isinstance(listed, list) and listed else item
    return isinstance(inner, dict) and "traceID" in inner


def _is_console(item: Mapping[str, Any]) -> bool:
    context = item.get("context")
    identity = context.get("trace_id") if isinstance(context, dict) else None
    return isinstance(identity, str) and identity.startswith("0x")


_FORMS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str], ...] = (
    (lambda item: "trace_id" in item and not _NATIVE_FIELDS.isdisjoint(item), _NATIVE),
    (_is_jaeger, f"Jaeger's JSON: {_EXPORT}"),
    (
        lambda item: {"traceId", "id"} <= item.keys() and "localEndpoint" in item,
        f"Zipkin's JSON: {_EXPORT}",
    ),
    (_is_console, _CONSOLE_FORM),
    (
        lambda item: "observations" in item or {"traceId", "startTime", "type"} <= item.keys(),
        f"an export of Langfuse: {_EXPORT}",
    ),
    (
        lambda item: "dotted_order" in item or {"run_type", "inputs"} <= item.keys(),
        f"an export of LangSmith: {_EXPORT}",
    ),
    (
        lambda item: "info" in item and isinstance(item.get("data"), dict),
        f"an export of MLflow: {_EXPORT}",
    ),
    (
        lambda item: {"span_kind", "context"} <= item.keys(),
        f"an export of Phoenix: {_EXPORT}",
    ),
)


def find_foreign_form(content: Any) -> str | None:
    """Return what decoded JSON is in place of an OTLP request, with the cure, if it is known."""
    item = content[0] if isinstance(content, list) and content else content
    if not isinstance(item, dict):
        return None
    return next((form for is_form, form in _FORMS if is_form(item)), None)


def find_foreign_text(body: bytes) -> str | None:
    """Return what a body that is no JSON value is in place of an OTLP request, if it is known."""
    return _CONSOLE_FORM if _CONSOLE.search(body[:_SEARCHED]) else None
