"""Extract native traces, one per request, from the spans of closed traces.

Extraction is pure and deterministic: neither the order of spans nor duplicates change the result,
and no content of a span makes it raise. Reasons for missing fields are in `Trace.missing`; traces
without a request are counted by reason.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from pydantic import ValidationError

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import Counts
from ragmeter.ingest.conventions.reply_facts import body_objects
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.conventions.values import is_hidden, parse_nested_json
from ragmeter.ingest.requests.fields import ComposedRequest, compose_request
from ragmeter.ingest.requests.tree import (
    MISSING,
    SpanNode,
    SpanTree,
    annotate_tree,
    build_span_tree,
    find_requests,
)
from ragmeter.ingest.spans import Span, replace_surrogates
from ragmeter.trace import MAX_ID, Trace

_UNKNOWN_SERVICE = "unknown_service"  # as OpenTelemetry names a service without a configured name
_THRESHOLD = re.compile(r"(?:^|;)th:([0-9a-f]{1,14})(?:;|$)")
_SERVER_KINDS = (2, 5)  # server and consumer
# Attributes with such names may hold a field; those with the names below never do.
_MAY_HOLD = {
    "query": re.compile(
        r"^(?!.*(?:output|completion|response|answer|reply|result))"
        r".*(?:input|prompt|question|query|request|message|user)",
        re.IGNORECASE,
    ),
    "answer": re.compile(
        r"^(?!.*(?:input|prompt|question|query|request|user))"
        r".*(?:output|completion|response|answer|reply|result|generat|message)",
        re.IGNORECASE,
    ),
    "passages": re.compile(
        r"document|context|retriev|passage|chunk|snippet|search|hits", re.IGNORECASE
    ),
}
_RETRIEVING = (SpanRole.RETRIEVER, SpanRole.RERANKER, SpanRole.VECTOR_DB)
# of a span that retrieves, whatever a product calls its result
_MAY_HOLD_RESULT = re.compile(
    rf"{_MAY_HOLD['passages'].pattern}|output|result|response|returned", re.IGNORECASE
)
_NEVER_HOLDS = re.compile(
    r"token|model|agent|parameter|schema|finish|exception|status|header|statement"
    r"|(?:^|[._-])(?:id|ids|name|type|kind|version|count|url|uri|path|mime|role|language|template"
    r"|method|code|stack\w*|tool\w*)(?:[._-]|$)",
    re.IGNORECASE,
)
# of an object of messages, whose values say nothing
_NO_WORDS = frozenset(("role", "type", "kind", "part_kind", "id", "name", "finish_reason", "model"))
_MAX_SEARCHED = 100  # spans of a request, and attributes of a span, that are searched for a field
_MAX_UNREAD = 3  # attributes of a span that are named
_MAX_NAME = 100  # characters of one


@dataclass(frozen=True, slots=True)
class FieldOrigin:
    """The span that holds a field of a trace.

    Args:
        name: Of the span; for a tool, its own.
        found: False for a span that was looked at in vain, and a tool that gives no passages.
        unread: Attributes of a span that was looked at in vain, whose text may be the field.
    """

    span_id: str
    name: str
    convention: str
    found: bool = True
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NotRequest:
    """A trace without a request, or a request that cannot be a trace.

    Args:
        reason: As in `ExtractedRequests.dropped`.
        nearest: The span that comes nearest to a request.
        role: Of that span.
    """

    reason: str
    trace_id: str
    nearest: FieldOrigin
    role: str


@dataclass(slots=True)
class ExtractedRequests:
    """The requests of some spans.

    Attributes:
        traces: One trace per request.
        dropped: Traces without a request by reason (`no_llm_no_retriever`, `indexing`,
            `evaluator`, `own`), and requests without a trace (`no_time`, `invalid`).
        not_requests: For each of those the span that comes nearest to a request, if inspected.
        origins: For each of `traces`, the spans that hold its fields, by field, if inspected.
        counts: What redaction did to the traces.
        inspected: Whether the spans behind the results were looked for.
    """

    inspected: bool = True
    traces: list[Trace] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    not_requests: list[NotRequest] = field(default_factory=list)
    origins: list[dict[str, list[FieldOrigin]]] = field(default_factory=list)
    counts: Counts = field(default_factory=dict)

    def drop(self, reason: str, trace_id: str, nearest: SpanNode) -> None:
        """Count a trace without a request, or a request without a trace."""
        self.dropped[reason] += 1
        if self.inspected:
            origin = _origin(nearest, unread=_texts_of(nearest)[:_MAX_UNREAD])
            near = NotRequest(reason, trace_id, origin, nearest.role.value)
            self.not_requests.append(near)


def extract_requests(
    spans: Sequence[Span], settings: OtlpSettings, *, inspected: bool = True
) -> ExtractedRequests:
    """Extract the requests of one or several traces, in order of time.

    Args:
        spans: The spans.
        settings: How they are read.
        inspected: Whether somebody asks for the spans behind the results.
    """
    groups: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[span.trace_id].append(span)
    extracted = ExtractedRequests(inspected)
    for trace_id in sorted(groups, key=lambda key: (min(one.start for one in groups[key]), key)):
        tree = build_span_tree(groups[trace_id])
        _extract(trace_id, tree, settings, extracted)
        tree.release()
    return extracted


def _extract(
    trace_id: str, tree: SpanTree, settings: OtlpSettings, extracted: ExtractedRequests
) -> None:
    annotate_tree(tree.root, settings)
    nodes = find_requests(tree.root)
    below = _requests_below(tree.root, nodes)
    candidates = [(node, compose_request(node, _server(node, below), settings)) for node in nodes]
    requests = [(node, request) for node, request in candidates if request.is_request]
    if not requests:
        nearest = _nearest(tree) if extracted.inspected else tree.root
        extracted.drop(_drop_reason(tree), trace_id, nearest)
    for node, request in requests:
        span = node.first_span()
        if span is MISSING or request.end <= 0:
            extracted.drop("no_time", trace_id, node)
            continue
        suffix = f"-{span.span_id}" if len(requests) > 1 else ""
        try:
            trace = Trace.model_validate(
                {
                    **request.values,
                    "trace_id": trace_id + suffix,
                    "service": _service(node),
                    "sampling": _sampling(node),
                    "span": {"trace_id": trace_id, "span_id": span.span_id},
                    "timestamp": datetime.fromtimestamp(request.end / 1e9, UTC),
                }
            )
        except (ValidationError, ValueError, OverflowError, OSError):
            extracted.drop("invalid", trace_id, node)
            continue
        extracted.traces.append(trace)
        if extracted.inspected:
            extracted.origins.append(_origins(request, node))


def _drop_reason(tree: SpanTree) -> str:
    roles = {node.role for node in tree.root.walk() if node.span is not MISSING}
    if roles & {SpanRole.EMBEDDING, SpanRole.VECTOR_DB}:
        return "indexing"
    if not roles and tree.own:
        return "own"
    if not roles and tree.evaluators:
        return "evaluator"
    return "no_llm_no_retriever"


# The roles of spans in the order in which they come near to a request, the nearest first.
_NEARNESS = (
    SpanRole.LLM,
    SpanRole.RETRIEVER,
    SpanRole.RERANKER,
    SpanRole.TOOL,
    SpanRole.CHAIN,
    SpanRole.VECTOR_DB,
    SpanRole.EMBEDDING,
)
_CLIENT_KIND = 3


def _nearest(tree: SpanTree) -> SpanNode:
    """Return the span of a trace without a request that comes nearest to one."""
    nodes = [node for node in tree.root.walk() if node.span is not MISSING]
    if not nodes:
        return next(iter((*tree.own, *tree.evaluators)), tree.root)

    def distance(node: SpanNode) -> tuple[int, bool, bool]:
        place = _NEARNESS.index(node.role) if node.role in _NEARNESS else len(_NEARNESS)
        # what calls a model may be its client
        return place, not _texts_of(node), node.span.kind != _CLIENT_KIND

    return min(nodes, key=distance)  # of several the first


def _requests_below(root: SpanNode, nodes: Sequence[SpanNode]) -> Counter[int]:
    """Count the requests at and below every node, by its identity."""
    below = Counter(id(node) for node in nodes)
    for node in reversed(list(root.walk())):
        if node.parent is not None and below[id(node)]:
            below[id(node.parent)] += below[id(node)]
    return below


def _server(node: SpanNode, below: Counter[int]) -> SpanNode | None:
    """Return the nearest server or queue span above a request if it serves this request alone."""
    for ancestor in node.ancestors():
        if below[id(ancestor)] > 1:
            return None
        if ancestor.span.kind in _SERVER_KINDS:
            return ancestor
    return None


def _service(node: SpanNode) -> str:
    for below in node.walk():
        name = below.span.resource.get("service.name")
        if isinstance(name, str) and name.strip():
            return replace_surrogates(name.strip())[:MAX_ID]
    return _UNKNOWN_SERVICE


def _sampling(node: SpanNode) -> dict[str, float] | None:
    """Return the probability with which the spans were sampled, from `ot=th:...` in `tracestate`.

    It is a rejection threshold of 56 bits in hex without trailing zeros
    (https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/).
    """
    for below in node.walk():
        if "ot=" not in below.span.trace_state:
            continue
        for entry in below.span.trace_state.split(","):
            key, _, value = entry.strip().partition("=")
            match = _THRESHOLD.search(value) if key == "ot" else None
            if match is not None:
                threshold = int(match[1].ljust(14, "0"), 16)
                return {"probability": (2**56 - threshold) / 2**56}
    return None


def _origins(request: ComposedRequest, top: SpanNode) -> dict[str, list[FieldOrigin]]:
    origins = {name: [_origin(node) for node in nodes] for name, nodes in request.origins.items()}
    for name, nodes in request.looked_at.items():
        looked_at = [node for node in nodes if node.span is not MISSING]
        origins[name] = [
            _origin(node, found=False, unread=_unread(node, name)) for node in looked_at
        ]
        if name in _MAY_HOLD and not any(one.unread for one in origins[name]):
            others = islice((*top.ancestors(), *top.walk()), _MAX_SEARCHED)
            found = (
                _origin(node, found=False, unread=unread)
                for node in others
                if node.span is not MISSING and (unread := _unread(node, name))
            )
            origins[name] += islice(found, 1)
    origins["tools"] = [
        FieldOrigin(
            tool.node.span.span_id, tool.name, tool.node.preview.convention, found=tool.taken
        )
        for tool in request.tools
    ]
    return origins


def _origin(node: SpanNode, *, found: bool = True, unread: list[str] | None = None) -> FieldOrigin:
    span = node.span
    convention = node.preview.convention
    return FieldOrigin(span.span_id, span.name, convention, found=found, unread=unread or [])


def _texts_of(node: SpanNode) -> list[str]:
    """Return the attributes of a span whose texts may be any field of a request."""
    return [*dict.fromkeys(key for name in _MAY_HOLD for key in _unread(node, name))]


def _says_something(value: str) -> bool:
    """Return whether a text has words: messages without content have roles and kinds alone."""
    opened = parse_nested_json(value)
    objects = list(body_objects(opened))
    if not objects:  # a text, or a list of texts
        return True
    items = (item for one in objects for item in one.items())
    return any(isinstance(text, str) and text and key not in _NO_WORDS for key, text in items)


def _unread(node: SpanNode, field_name: str) -> list[str]:
    """Return the attributes of a span whose text may be a field that was not found."""
    pattern = _MAY_HOLD.get(field_name)
    if pattern is None:
        return []
    if field_name == "passages" and node.role in _RETRIEVING:
        pattern = _MAY_HOLD_RESULT
    holders = [node.span.attributes, *(event.attributes for event in node.span.events)]
    items = ((key, value) for holder in holders for key, value in holder.items())
    keys = [
        key[:_MAX_NAME]
        for key, value in islice(items, _MAX_SEARCHED)
        if isinstance(value, str)
        and len(value.split(None, 1)) > 1
        and pattern.search(key)
        and not _NEVER_HOLDS.search(key)
        and not is_hidden(value)
        and _says_something(value)
    ]
    return [*dict.fromkeys(keys)][:_MAX_UNREAD]
