"""Extract native traces, one per request, from the spans of a closed trace.

`requests` is pure and deterministic: neither the order of the spans nor duplicates change what
comes out, and nothing that a span holds makes it raise. What could not be known is named in
`Trace.missing`; spans that are no request are counted with the reason.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.requests.boundaries import annotate_tree, find_requests
from ragmeter.ingest.requests.fields import ComposedRequest, compose_request
from ragmeter.ingest.requests.tree import SpanNode, SpanTree, build_span_tree
from ragmeter.ingest.spans import Span
from ragmeter.trace import MAX_ID, Trace

_UNKNOWN_SERVICE = "unknown_service"  # what OpenTelemetry itself writes where no name is configured
_THRESHOLD = re.compile(r"(?:^|;)th:([0-9a-f]{1,14})(?:;|$)")


@dataclass(frozen=True, slots=True)
class FieldOrigin:
    """The span that gave a field."""

    span_id: str
    name: str
    convention: str


@dataclass(slots=True)
class ExtractedRequests:
    """`dropped` counts the traces that hold no request, by reason: `no_llm_no_retriever`,
    `indexing`, `evaluator`, `own`; and requests that cannot be told: `no_time`, `invalid`.
    `origins` says for each of `traces` which spans gave its fields."""

    traces: list[Trace] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    origins: list[dict[str, list[FieldOrigin]]] = field(default_factory=list)


def extract_requests(spans: Sequence[Span], settings: OtlpSettings) -> ExtractedRequests:
    """The requests of one or several traces, in order of time."""
    groups: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[span.trace_id].append(span)
    found = ExtractedRequests()
    order = sorted(groups, key=lambda trace: (min(span.start for span in groups[trace]), trace))
    for trace_id in order:
        _of_trace(trace_id, groups[trace_id], settings, found)
    return found


def _of_trace(
    trace_id: str, spans: list[Span], settings: OtlpSettings, found: ExtractedRequests
) -> None:
    tree = build_span_tree(spans)
    _of_tree(trace_id, tree, settings, found)
    tree.release()


def _of_tree(
    trace_id: str, tree: SpanTree, settings: OtlpSettings, found: ExtractedRequests
) -> None:
    tools = frozenset(settings.tool_names)
    annotate_tree(tree.root, tools)
    nodes = find_requests(tree.root)
    below = _requests_below(tree.root, nodes)
    composed = [(node, compose_request(node, _server(node, below), settings)) for node in nodes]
    composed = [(node, one) for node, one in composed if one.is_request]
    if not composed:
        found.dropped[_why_none(tree)] += 1
        return
    for node, one in composed:
        root = next((each.span for each in node.walk() if each.span is not None), None)
        if root is None or one.end <= 0:
            found.dropped["no_time"] += 1
            continue
        suffix = f"-{root.span_id}" if len(composed) > 1 else ""
        values: dict[str, Any] = {
            **one.values,
            "trace_id": trace_id + suffix,
            "service": _service(node),
            "sampling": _sampling(node),
            "span": {"trace_id": trace_id, "span_id": root.span_id},
        }
        try:
            values["timestamp"] = datetime.fromtimestamp(one.end / 1e9, UTC)
            trace = Trace.model_validate(values)
        except (ValidationError, ValueError, OverflowError, OSError):
            found.dropped["invalid"] += 1
            continue
        found.traces.append(trace)
        found.origins.append(_origins(one))


def _why_none(tree: SpanTree) -> str:
    roles = {node.role for node in tree.root.walk() if node.span is not None}
    if roles & {SpanRole.EMBEDDING, SpanRole.VECTOR_DB}:
        return "indexing"
    if not roles and tree.own:
        return "own"
    if not roles and tree.evaluators:
        return "evaluator"
    return "no_llm_no_retriever"


def _requests_below(root: SpanNode, nodes: Sequence[SpanNode]) -> Counter[int]:
    """How many requests are at and below every node, by its identity."""
    below = Counter(id(node) for node in nodes)
    for one in reversed(list(root.walk())):
        if one.parent is not None and below[id(one)]:
            below[id(one.parent)] += below[id(one)]
    return below


def _server(node: SpanNode, below: Counter[int]) -> SpanNode | None:
    """The nearest server or queue span above a request, where it serves this request alone."""
    for up in node.ancestors():
        if below[id(up)] > 1:
            return None
        if up.span is not None and up.span.kind in (2, 5):
            return up
    return None


def _service(node: SpanNode) -> str:
    for one in node.walk():
        if one.span is not None:
            name = one.span.resource.get("service.name")
            if isinstance(name, str) and name.strip():
                return name.strip().encode("utf-8", "replace").decode()[:MAX_ID]
    return _UNKNOWN_SERVICE


def _sampling(node: SpanNode) -> dict[str, float] | None:
    """The probability with which the spans were kept, from `ot=th:...` of the trace state: a
    rejection threshold T of 56 bits in hex, without its trailing zeros."""
    for one in node.walk():
        if one.span is None or "ot=" not in one.span.trace_state:
            continue
        for entry in one.span.trace_state.split(","):
            key, _, value = entry.strip().partition("=")
            match = _THRESHOLD.search(value) if key == "ot" else None
            if match is not None:
                threshold = int(match[1].ljust(14, "0"), 16)
                return {"probability": (2**56 - threshold) / 2**56}
    return None


def _origins(one: ComposedRequest) -> dict[str, list[FieldOrigin]]:
    return {
        name: [
            FieldOrigin(node.span.span_id, node.span.name, node.reading.convention)
            for node in nodes
            if node.span is not None
        ]
        for name, nodes in one.origins.items()
    }
