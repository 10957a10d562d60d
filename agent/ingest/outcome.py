"""How a request ended and how long it took: status, what went wrong, seconds by stage.

Status 0 is unset and means ok. A timeout has no field of its own in any convention: it is told by
the type of the error, else by its message, never by a stack trace, whose lines name timeouts that
did not happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.ingest.conventions.reading import Role
from agent.ingest.conventions.texts import number
from agent.ingest.spans import Span
from agent.ingest.tree import Node
from agent.trace import Status

__all__ = ["Failure", "first_token", "outcome", "seconds"]

MAX_ERROR = 1_000  # characters of what went wrong; a stack trace is thousands
_MAX_LINES = 8  # of a message that goes on after its first line
_MAX_MESSAGE = 500  # characters of a message that are searched for a timeout
_TIMEOUT = re.compile(
    r"time[-_ ]?d?[-_ ]?out|deadline[-_ ]?exceeded|\bETIMEDOUT\b|\bgateway time", re.IGNORECASE
)
_TIMEOUT_CODES = (408, 504)


@dataclass(frozen=True, slots=True)
class Failure:
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
        return both[:MAX_ERROR] or None


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


def failure_of(node: Node) -> Failure:
    """What one span says of its own error."""
    span = node.span
    if span is None:
        return Failure()
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
    return Failure(kind[:MAX_ERROR], _one_line(message)[:MAX_ERROR])


def _http_status(span: Span) -> float | None:
    for key in ("http.response.status_code", "http.status_code"):
        code = number(span.attributes.get(key))
        if code is not None:
            return code
    return None


def _failed(node: Node) -> bool:
    if node.span is None:
        return False
    if node.span.status == 2 or node.reading.failed:
        return True
    if node.span.kind != 2:
        return False
    code = _http_status(node.span)
    return code is not None and code >= 500


def outcome(
    nodes: Sequence[Node], server: Node | None, answered: bool
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
    told = [failure_of(one) for one in (*failed_top, *reversed(inside))]
    known = [one for one in told if one.text]
    if not known:
        return "error", None
    # the request's own word counts; one without a type is explained by the span that has it
    first = known[0]
    if not first.type:
        first = next((one for one in known if one.type), first)
    timeout = known[0].timeout or first.timeout
    return ("timeout" if timeout else "error"), first.text


def _gave_up(nodes: Sequence[Node], inside: Sequence[Node]) -> bool:
    """Whether a request without an answer and without a status of its own failed: its last call or
    retrieval did."""
    steps = [one for one in nodes if one.role in (Role.LLM, Role.RETRIEVER, Role.VECTOR_DB)]
    if not steps:
        return False
    last = max(steps, key=lambda one: (one.end, one.start, one.span.span_id if one.span else ""))
    return any(one is last for one in inside)


def seconds(nodes: Iterable[Node]) -> float | None:
    """The time that spans cover together: what runs side by side counts once."""
    spans = sorted((one.start, one.end) for one in nodes if one.span is not None and one.end > 0)
    if not spans:
        return None
    total, upto = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, upto))
        upto = max(upto, end)
    return min(total / 1e9, 1e9)


def first_token(start: int, calls: Sequence[Node]) -> float | None:
    """Seconds until the first token of the answer; the answer is the last of the calls."""
    for one in reversed(calls):
        token = one.reading.first_token_ns
        if token is not None and token >= start > 0:
            return min((token - start) / 1e9, 1e9)
    return None
