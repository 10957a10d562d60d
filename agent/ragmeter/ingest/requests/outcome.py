"""Derive status, error, stage durations, token usage and cost of a request from its spans.

Span status 0 is unset and means ok. No convention has a field for a timeout: it is recognised by
the type of the error, else by its message, never by a stack trace, whose lines name timeouts that
did not happen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.conventions.values import first_count, key_list, parse_number
from ragmeter.ingest.requests.tree import SpanNode
from ragmeter.ingest.spans import Span
from ragmeter.trace import Status

_MAX_ERROR = 1_000  # characters of an error; a stack trace has thousands
_MAX_LINES = 8  # of a message that goes on after its first line
_MAX_MESSAGE = 500  # characters of a message that are searched for a timeout
_MAX_SAME_NUMBERS = 8  # calls with the same numbers that the next one is compared with
_MAX_SECONDS = 1e9
_TIMEOUT = re.compile(
    r"time[-_ ]?d?[-_ ]?out|deadline[-_ ]?exceeded|\bETIMEDOUT\b|\bgateway time", re.IGNORECASE
)
_TIMEOUT_CODES = (408, 504)
_STEP_ROLES = (SpanRole.LLM, SpanRole.RETRIEVER, SpanRole.VECTOR_DB)


@dataclass(frozen=True, slots=True)
class _SpanFailure:
    """The error of a span; empty texts if the span has none."""

    type: str = ""
    message: str = ""

    @property
    def timeout(self) -> bool:
        return any(_TIMEOUT.search(text[:_MAX_MESSAGE]) for text in (self.type, self.message))

    @property
    def text(self) -> str:
        return ": ".join(part for part in (self.type, self.message) if part)[:_MAX_ERROR]


def read_outcome(
    nodes: Sequence[SpanNode], server: SpanNode | None, answered: bool
) -> tuple[Status, str | None]:
    """Return the status and the error of a request.

    A failed inner span that a retry or another model made up for is not an error of the request,
    unless the request has no answer. `nodes` are the request itself, then all nodes below it;
    `server` is the server span above.
    """
    failed_top = [node for node in (nodes[0], server) if node is not None and failed(node)]
    # the failure that ended last comes first; a parent ends after the child that broke it
    inside = [node for node in nodes[1:] if failed(node)]
    inside.sort(key=lambda node: (node.end, -node.start, node.span.span_id), reverse=True)
    if not failed_top and not (not answered and inside and _gave_up(nodes, inside)):
        return "ok", None
    failures = [_read_failure(node) for node in (*failed_top, *inside)]
    failures = [failure for failure in failures if failure.text]
    if not failures:
        return "error", None
    # the request's own error counts; one without a type is explained by a span that has one
    own = explained = failures[0]
    if not own.type:
        explained = next((failure for failure in failures if failure.type), own)
    return ("timeout" if own.timeout or explained.timeout else "error"), explained.text


def covered_seconds(nodes: Iterable[SpanNode]) -> float | None:
    """Return the seconds that spans cover together, overlaps counted once; None without spans."""
    spans = sorted((node.start, node.end) for node in nodes if node.end > 0)
    if not spans:
        return None
    total = 0
    covered_until = 0
    for start, end in spans:
        total += max(0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    return min(total / 1e9, _MAX_SECONDS)


def seconds_to_first_token(start: int, calls: Sequence[SpanNode]) -> float | None:
    """Return the seconds from `start` (Unix nanoseconds) to the first token of the last call."""
    for call in reversed(calls):
        token = call.preview.first_token_ns
        if token is not None and token >= start > 0:
            return min((token - start) / 1e9, _MAX_SECONDS)
    return None


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Tokens and cost of a request, each None where no span tells it."""

    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


def sum_usage(nodes: Sequence[SpanNode]) -> RequestUsage:
    """Sum the tokens and costs of the nodes of a request, parents first."""
    counted = _with_usage(nodes, _tokens)
    cached = [_cached(node) for node in counted]
    inputs = [node.preview.input_tokens for node in counted]
    priced = [node.preview for node in _with_usage(nodes, _cost)]
    costs = [content.cost_usd for content in priced if content.cost_usd is not None]
    return RequestUsage(
        _sum_tokens(map(_all_input, inputs, cached)),
        _sum_tokens(cached),
        _sum_tokens(node.preview.output_tokens for node in counted),
        round(math.fsum(costs), 12) if costs else None,  # 0.1 + 0.2 dollars are 0.3
    )


def failed(node: SpanNode) -> bool:
    """Return whether a span has failed, by its status, its convention or its HTTP status."""
    if node.span.status == 2 or node.preview.failed:
        return True
    code = _http_status(node.span) if node.span.kind == 2 else None
    return code is not None and code >= 500


def _gave_up(nodes: Sequence[SpanNode], inside: Sequence[SpanNode]) -> bool:
    steps = [node for node in nodes if node.role in _STEP_ROLES]
    if not steps:
        return False
    last = max(steps, key=lambda node: (node.end, node.start, node.span.span_id))
    return any(node is last for node in inside)


def _read_failure(node: SpanNode) -> _SpanFailure:
    span = node.span
    content = node.preview
    kind = _stripped(span.attributes.get("error.type")) or _stripped(content.error_type)
    message = _stripped(content.error) or _stripped(span.attributes.get("error.message"))
    for event in reversed(span.events):
        if event.name == "exception":
            kind = kind or _stripped(event.attributes.get("exception.type"))
            message = message or _stripped(event.attributes.get("exception.message"))
    if not message:
        message = _one_line(span.status_message)
    if not kind and _http_status(span) in _TIMEOUT_CODES:
        kind = "timeout"
    return _SpanFailure(kind[:_MAX_ERROR], _one_line(message)[:_MAX_ERROR])


def _stripped(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    """Return a message without its stack trace: the line before it, else its last line.

    A message whose first line ends in a colon goes on: Haystack names the component first and the
    error last.
    """
    before, _, trace = text.partition("Traceback (most recent call last)")
    lines = [line for line in before.splitlines() if line.strip()]
    lines = [line.strip() for line in _flush_left(lines) or lines]
    if lines:
        return " ".join(lines[:_MAX_LINES] if lines[0].endswith(":") else lines[:1])
    trace_lines = _flush_left(trace.splitlines())
    return trace_lines[-1].strip() if trace_lines else ""


def _flush_left(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line[0].isspace()]


def _http_status(span: Span) -> float | None:
    for key in ("http.response.status_code", "http.status_code"):
        code = parse_number(span.attributes.get(key))
        if code is not None:
            return code
    return None


def _tokens(node: SpanNode) -> Hashable | None:
    numbers = (node.preview.input_tokens, node.preview.output_tokens)
    return None if numbers == (None, None) else numbers


def _cached(node: SpanNode) -> int | None:
    told = node.preview.cached_input_tokens
    return told or first_count(node.span.attributes, key_list("cached_input_tokens"))


def _all_input(tokens: int | None, cached: int | None) -> int | None:
    """Return the tokens of input; cached ones that are more than these were counted apart."""
    return tokens + cached if tokens is not None and cached and cached > tokens else tokens


def _cost(node: SpanNode) -> Hashable | None:
    return node.preview.cost_usd


def _sum_tokens(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return min(sum(known), 2**53) if known else None


def _with_usage(
    nodes: Sequence[SpanNode], numbers_of: Callable[[SpanNode], Hashable | None]
) -> list[SpanNode]:
    """Return the calls whose numbers add up to those of the request.

    Calls that another span shows again are left out: one below it, or one at the same time with
    the same numbers from another instrumentation. Without calls, the topmost span with numbers
    has the sum: frameworks may add them up on an agent or chain.
    """
    calls = []
    counted: set[int] = set()  # calls and all nodes below them
    for node in nodes:
        if id(node.parent) in counted:
            counted.add(id(node))
        elif node.role is SpanRole.LLM and numbers_of(node) is not None:
            counted.add(id(node))
            calls.append(node)
    distinct: list[SpanNode] = []
    by_numbers: dict[Hashable | None, list[SpanNode]] = {}
    for call in sorted(calls, key=lambda call: (call.start, -call.end, call.span.span_id)):
        rivals = by_numbers.setdefault(numbers_of(call), [])
        if not any(_same_call(rival, call) for rival in rivals[-_MAX_SAME_NUMBERS:]):
            distinct.append(call)
            rivals.append(call)
    return distinct or [node for node in nodes if numbers_of(node) is not None][:1]


def _same_call(first: SpanNode, second: SpanNode) -> bool:
    if first.span.scope == second.span.scope:
        return False
    inside = first.start <= second.start and second.end <= first.end
    around = second.start <= first.start and first.end <= second.end
    return inside or around
