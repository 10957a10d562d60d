"""Read status, error, duration, token usage and cost of a request from its spans.

How a request ended and how long it took: status, what went wrong, seconds by stage.

Status 0 is unset and means ok. A timeout has no field of its own in any convention: it is told by
the type of the error, else by its message, never by a stack trace, whose lines name timeouts that
did not happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.conventions.values import parse_number
from ragmeter.ingest.requests.tree import SpanNode
from ragmeter.ingest.spans import Span
from ragmeter.trace import Status

_MAX_ERROR = 1_000  # characters of what went wrong; a stack trace is thousands
_MAX_LINES = 8  # of a message that goes on after its first line
_MAX_MESSAGE = 500  # characters of a message that are searched for a timeout
_TIMEOUT = re.compile(
    r"time[-_ ]?d?[-_ ]?out|deadline[-_ ]?exceeded|\bETIMEDOUT\b|\bgateway time", re.IGNORECASE
)
_TIMEOUT_CODES = (408, 504)


@dataclass(frozen=True, slots=True)
class _SpanFailure:
    """What a span says of its error; all "" where it says none."""

    type: str = ""
    message: str = ""

    @property
    def timeout(self) -> bool:
        return bool(
            _TIMEOUT.search(self.type[:_MAX_MESSAGE])
            or _TIMEOUT.search(self.message[:_MAX_MESSAGE])
        )

    @property
    def text(self) -> str | None:
        both = ": ".join(part for part in (self.type, self.message) if part)
        return both[:_MAX_ERROR] or None


def _string(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    """A message without its stack trace: the lines before it, else its last line. A message that
    ends in a colon goes on: Haystack names the component first and what went wrong last."""
    before, _, trace = text.partition("Traceback (most recent call last)")
    told = [line.strip() for line in before.splitlines() if line.strip() and not line[0].isspace()]
    told = told or [line.strip() for line in before.splitlines() if line.strip()]
    if told:
        return " ".join(told[:_MAX_LINES] if told[0].endswith(":") else told[:1])
    if not trace:
        return ""
    lines = [line for line in trace.splitlines() if line.strip() and not line[:1].isspace()]
    return lines[-1].strip() if lines else ""


def _read_failure(node: SpanNode) -> _SpanFailure:
    """What one span says of its own error."""
    span = node.span
    if span is None:
        return _SpanFailure()
    reading = node.reading
    kind = _string(span.attributes.get("error.type")) or _string(reading.error_type)
    message = _string(reading.error) or _string(span.attributes.get("error.message"))
    for event in reversed(span.events):
        if event.name == "exception":
            kind = kind or _string(event.attributes.get("exception.type"))
            message = message or _string(event.attributes.get("exception.message"))
    if not message:
        message = _one_line(span.status_message)
    if not kind and _http_status(span) in _TIMEOUT_CODES:
        kind = "timeout"
    return _SpanFailure(kind[:_MAX_ERROR], _one_line(message)[:_MAX_ERROR])


def _http_status(span: Span) -> float | None:
    for key in ("http.response.status_code", "http.status_code"):
        code = parse_number(span.attributes.get(key))
        if code is not None:
            return code
    return None


def _failed(node: SpanNode) -> bool:
    if node.span is None:
        return False
    if node.span.status == 2 or node.reading.failed:
        return True
    if node.span.kind != 2:
        return False
    code = _http_status(node.span)
    return code is not None and code >= 500


def read_outcome(
    nodes: Sequence[SpanNode], server: SpanNode | None, answered: bool
) -> tuple[Status, str | None]:
    """The status of a request and what went wrong; the first of `nodes` is the request itself.
    What failed inside and was made good by a retry or another model is no error of the request,
    unless it has no answer."""
    top = [one for one in (nodes[0], server) if one is not None]
    failed_top = [one for one in top if _failed(one)]
    inside = [one for one in nodes[1:] if _failed(one)]
    # what ended last is what it came to; a parent ends after the child that broke it
    inside.sort(key=lambda one: (one.end, -one.start, one.span.span_id if one.span else ""))
    if not failed_top and not (inside and not answered and _gave_up(nodes, inside)):
        return "ok", None
    told = [_read_failure(one) for one in (*failed_top, *reversed(inside))]
    known = [one for one in told if one.text]
    if not known:
        return "error", None
    # the request's own word counts; one without a type is explained by the span that has it
    first = known[0]
    if not first.type:
        first = next((one for one in known if one.type), first)
    timeout = known[0].timeout or first.timeout
    return ("timeout" if timeout else "error"), first.text


def _gave_up(nodes: Sequence[SpanNode], inside: Sequence[SpanNode]) -> bool:
    """Whether a request without an answer and without a status of its own failed: its last call or
    retrieval did."""
    steps = [
        one for one in nodes if one.role in (SpanRole.LLM, SpanRole.RETRIEVER, SpanRole.VECTOR_DB)
    ]
    if not steps:
        return False
    last = max(steps, key=lambda one: (one.end, one.start, one.span.span_id if one.span else ""))
    return any(one is last for one in inside)


def covered_seconds(nodes: Iterable[SpanNode]) -> float | None:
    """The time that spans cover together: what runs side by side counts once."""
    spans = sorted((one.start, one.end) for one in nodes if one.span is not None and one.end > 0)
    if not spans:
        return None
    total, upto = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, upto))
        upto = max(upto, end)
    return min(total / 1e9, 1e9)


def seconds_to_first_token(start: int, calls: Sequence[SpanNode]) -> float | None:
    """Seconds until the first token of the answer; the answer is the last of the calls."""
    for one in reversed(calls):
        token = one.reading.first_token_ns
        if token is not None and token >= start > 0:
            return min((token - start) / 1e9, 1e9)
    return None


_ALIKE = 8  # calls with the same numbers that the next is compared with


def sum_usage(nodes: Sequence[SpanNode]) -> tuple[int | None, int | None, float | None]:
    """Tokens in and out and USD of a request, None where nobody says. Parents come first."""
    counted, priced = _distinct(nodes, _tokens), _distinct(nodes, _cost)
    if not counted:
        # a framework may add them up itself, on its agent or chain: the topmost has the sum
        counted = [one for one in nodes if _tokens(one) is not None][:1]
    if not priced:
        priced = [one for one in nodes if _cost(one) is not None][:1]
    costs = [one.reading.cost_usd for one in priced if one.reading.cost_usd is not None]
    return (
        _sum([one.reading.input_tokens for one in counted]),
        _sum([one.reading.output_tokens for one in counted]),
        sum(costs) if costs else None,
    )


def _tokens(node: SpanNode) -> Hashable | None:
    numbers = (node.reading.input_tokens, node.reading.output_tokens)
    return None if numbers == (None, None) else numbers


def _cost(node: SpanNode) -> Hashable | None:
    return node.reading.cost_usd


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(sum(known), 2**53) if known else None


def _distinct(
    nodes: Sequence[SpanNode], tells: Callable[[SpanNode], Hashable | None]
) -> list[SpanNode]:
    """Calls that tell something, without those that are seen by another span too: one below it,
    or one beside it at the same time with the same numbers from another instrumentor. `nodes` has
    parents first."""
    tops = []
    counted: set[int] = set()  # and all below them
    for one in nodes:
        if id(one.parent) in counted:
            counted.add(id(one))
        elif one.role is SpanRole.LLM and tells(one) is not None:
            counted.add(id(one))
            tops.append(one)
    kept: list[SpanNode] = []
    by_numbers: dict[Hashable | None, list[SpanNode]] = {}
    for one in sorted(tops, key=lambda each: (each.start, -each.end, _span_id(each))):
        alike = by_numbers.setdefault(tells(one), [])
        if not any(_same_call(old, one) for old in alike[-_ALIKE:]):
            kept.append(one)
            alike.append(one)
    return kept


def _same_call(one: SpanNode, other: SpanNode) -> bool:
    if one.span is None or other.span is None or one.span.scope == other.span.scope:
        return False
    inside = one.start <= other.start and other.end <= one.end
    around = other.start <= one.start and one.end <= other.end
    return inside or around


def _span_id(node: SpanNode) -> str:
    return node.span.span_id if node.span is not None else ""
