"""Traces of spans, built by hand for tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.requests.extraction import ExtractedRequests, extract_requests
from ragmeter.ingest.spans import Span, SpanEvent
from ragmeter.trace import Trace

__all__ = [
    "DATA",
    "T0",
    "Run",
    "documents",
    "exception",
    "expected",
    "messages",
    "only",
    "read",
    "sample",
]

DATA = Path(__file__).parents[1] / "data" / "otlp"
T0 = 1_790_000_000_000_000_000  # Unix nanoseconds


class Run:
    """Spans of one trace. Times are seconds after the start; parents are given by span."""

    def __init__(self, trace_id: str = "a" * 32, scope: str = "app", service: str = "bot") -> None:
        self.trace_id, self.scope = trace_id, scope
        self.resource: dict[str, Any] = {"service.name": service}
        self.spans: list[Span] = []

    def span(
        self,
        name: str,
        parent: Span | str | None = None,
        at: tuple[float, float] = (0, 1),
        attributes: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Span:
        span = Span(
            trace_id=self.trace_id,
            span_id=f"{len(self.spans) + 1:016x}",
            parent_id=parent.span_id if isinstance(parent, Span) else parent or "",
            name=name,
            start=T0 + round(at[0] * 1e9),
            end=T0 + round(at[1] * 1e9),
            attributes=attributes or {},
            scope=fields.pop("scope", self.scope),
            resource=self.resource,
            **fields,
        )
        self.spans.append(span)
        return span


def documents(
    *texts: str, prefix: str = "retrieval.documents", **more: list[Any]
) -> dict[str, Any]:
    """Documents as OpenInference flattens them; `id=[...]` and the like go beside the texts."""
    out: dict[str, Any] = {}
    for n, text in enumerate(texts):
        out[f"{prefix}.{n}.document.content"] = text
        for name, values in more.items():
            out[f"{prefix}.{n}.document.{name}"] = values[n]
    return out


def messages(question: str | None = None, reply: str | None = None) -> dict[str, Any]:
    """Messages of a model call as OpenInference flattens them."""
    out: dict[str, Any] = {}
    for text, side, role in ((question, "input", "user"), (reply, "output", "assistant")):
        if text is not None:
            out[f"llm.{side}_messages.0.message.role"] = role
            out[f"llm.{side}_messages.0.message.content"] = text
    return out


def exception(kind: str, message: str) -> SpanEvent:
    return SpanEvent("exception", T0, {"exception.type": kind, "exception.message": message})


def read(run: Run | list[Span], **settings: Any) -> ExtractedRequests:
    spans = run.spans if isinstance(run, Run) else run
    return extract_requests(spans, OtlpSettings(**settings))


def only(run: Run | list[Span], **settings: Any) -> Trace:
    """Return the only request of a trace."""
    (trace,) = read(run, **settings).traces
    return trace


def sample(name: str) -> list[Span]:
    """The spans of a sample file."""
    raw = (DATA / name).read_bytes()
    if name.endswith(".gz"):
        raw = gzip.decompress(raw)
    bodies = raw.splitlines() if ".jsonl" in name else [raw]
    return [span for body in bodies for span in decode_traces(body, json=True).spans]


def expected() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
    return rows
