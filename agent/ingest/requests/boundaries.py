"""Decide which spans of a trace are requests: the topmost ones that retrieve and answer.

A server or queue span above lends its status and time; a job above many questions is no request,
its children are; an agent that retrieves again and again is one. Where no span retrieves and
answers, what is left is taken as it is: a chat without retrieval, a retrieval that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import islice

from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.requests.tree import SpanNode

# operations of a vector database that look for something; the others write
_SEARCHES = ("query", "search", "retrieve", "find", "knn", "match", "fetch", "get", "scroll")

_FIRST = 100  # spans that are asked for the question; real ones are asked three
_TOOL_NAMES = (
    *("tool.name", "gen_ai.tool.name", "traceloop.entity.name"),
    *("ai.toolCall.name", "spring.ai.tool.definition.name"),
)


def _is_search(node: SpanNode, tool_names: Container[str]) -> bool:
    reading = node.reading
    if reading.role is SpanRole.RETRIEVER:
        return True
    if reading.role is SpanRole.VECTOR_DB:
        return reading.documents is not None or _looks_for(node)
    if reading.role is SpanRole.TOOL and reading.documents is not None and node.span is not None:
        attributes = node.span.attributes
        given = [attributes.get(key) for key in _TOOL_NAMES]
        names = [name for name in given if isinstance(name, str)]
        # "execute_tool search", as the GenAI conventions name the span
        return any(
            name in tool_names
            for name in (*names, node.span.name, node.span.name.rpartition(" ")[2])
        )
    return False


def _looks_for(node: SpanNode) -> bool:
    if node.span is None:
        return False
    for key in ("db.operation.name", "db.operation"):
        operation = node.span.attributes.get(key)
        if isinstance(operation, str):
            return any(word in operation.lower() for word in _SEARCHES)
    return False


def annotate_tree(root: SpanNode, tool_names: Container[str] = ()) -> None:
    """Fills in what every span is and its subtree holds: top-level retrievals and calls of
    models."""
    order = list(root.walk())
    inside: set[int] = set()  # nodes below a retrieval: theirs is not the request's own
    for node in order:
        node.is_search = _is_search(node, tool_names)
        parent = node.parent
        if parent is not None and (parent.is_search or id(parent) in inside):
            inside.add(id(node))
    for node in reversed(order):
        node.searches = node.calls = node.first_search = node.last_call = 0
        for child in node.children:
            node.searches += child.searches
            node.calls += child.calls
            node.last_call = max(node.last_call, child.last_call)
            if child.first_search and (
                not node.first_search or child.first_search < node.first_search
            ):
                node.first_search = child.first_search
        if node.is_search and id(node) not in inside:
            # one, whatever is below it: that counts for nothing else
            node.searches, node.first_search = 1, max(node.start, 1)
        elif id(node) in inside:
            node.searches = node.first_search = 0
        if node.role is SpanRole.LLM and id(node) not in inside:
            node.calls += 1
            node.last_call = max(node.last_call, last_retrieval_moment(node))


def last_retrieval_moment(node: SpanNode) -> int:
    """Until when a call may have seen what was retrieved: one that ends as the retrieval begins
    has not, unless it takes no time by its clock."""
    return max(node.end - 1, node.start, 1)


def _is_whole_request(node: SpanNode) -> bool:
    """Whether a subtree retrieves and answers. A call that ended before the first retrieval began
    has rewritten the question."""
    if not node.searches:
        return False
    if node.role is SpanRole.RETRIEVER:  # retrieve and generate in one span
        reading = node.content()
        return (
            reading.query is not None
            and bool(reading.documents)
            and reading.answer is not None
            and not any(one.text and one.text in reading.answer for one in reading.documents or [])
        )
    return node.calls > 0 and node.last_call >= node.first_search


def _is_request_part(node: SpanNode) -> bool:
    return bool(node.searches or node.calls)


def _is_application(node: SpanNode) -> bool:
    return node.span is not None and node.role is not SpanRole.OTHER


def _has_content(node: SpanNode) -> bool:
    """Whether a span was asked or answers itself, though it may hide what."""
    reading = node.content()
    values = (reading.query, reading.answer, reading.query_gap, reading.answer_gap)
    return any(value is not None for value in values)


_KINDS = (
    "openinference.span.kind",
    "traceloop.span.kind",
    "gen_ai.operation.name",
    "langfuse.observation.type",
    "mlflow.spanType",
)


def _is_agent(node: SpanNode) -> bool:
    """Whether a span is one run of an agent or workflow, whatever it does inside."""
    if node.span is None:
        return False
    kinds = (node.span.attributes.get(key) for key in _KINDS)
    return any(
        isinstance(kind, str) and ("agent" in kind.lower() or kind == "invoke_workflow")
        for kind in kinds
    )


def _question(node: SpanNode) -> str | None:
    """What a subtree was asked, as its topmost span tells it; where none of the first does, it is
    not known."""
    first = islice(node.walk(), _FIRST)
    return next((q for one in first if (q := one.content().query) is not None), None)


def _has_several_questions(nodes: list[SpanNode]) -> bool:
    """Whether more than one question is asked, as far as they are known."""
    return len({_question(node) for node in nodes} - {None}) > 1


def find_requests(root: SpanNode) -> list[SpanNode]:
    """The requests of a counted tree, in order of time."""
    return sorted(
        _find_below(root, _is_whole_request) or _find_below(root, _is_request_part), key=_order
    )


def _order(node: SpanNode) -> tuple[int, int, str]:
    """By time; a parent that is not there begins with its first child."""
    span = next(one.span for one in node.walk() if one.span is not None)
    return (span.start, span.end, span.span_id)


def _find_below(root: SpanNode, holds: Callable[[SpanNode], bool]) -> list[SpanNode]:
    found: list[SpanNode] = []
    stack = [root]
    while stack:
        node = stack.pop()
        parts = [child for child in node.children if holds(child)]
        if not parts:
            if holds(node):
                found.append(node)
        elif holds(node) and _is_request(node, parts, holds is _is_whole_request):
            found.append(node)
        else:
            stack += parts
            found += _failed_siblings(parts, node)
    return found


def _is_request(node: SpanNode, parts: list[SpanNode], whole: bool) -> bool:
    """Whether a span is one request, though parts of it could be requests themselves."""
    if _is_application(node) and (len(parts) == 1 or _has_content(node) or _is_agent(node)):
        return True
    if len(parts) == 1 or (whole and node.parent is None):
        return False  # the server above a request; several roots in one trace
    if not whole and not all(part.role is SpanRole.CHAIN and _has_content(part) for part in parts):
        return True  # calls side by side, not requests
    return not _has_several_questions(parts)


def _failed_siblings(parts: list[SpanNode], node: SpanNode) -> list[SpanNode]:
    """Beside requests those of the same name that came to nothing: they failed on the way."""
    names = {part.span.name for part in parts if part.span is not None}
    known = {id(part) for part in parts}
    return [
        child
        for child in node.children
        if id(child) not in known
        and child.span is not None
        and child.span.name in names
        and child.role is SpanRole.CHAIN
        and _is_request_part(child)
    ]
