"""Decide which spans of a trace are requests: the topmost ones that retrieve and answer.

A server or queue span above a request lends it its status and time. A job over many questions is
not a request, its children are; an agent that retrieves repeatedly is one request. If no span both
retrieves and answers, whatever does either counts: a chat without retrieval, a failed retrieval.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import islice

from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.requests.tree import SpanNode

# operations of a vector database that read; all others write
_READ_OPERATIONS = (
    *("query", "search", "retrieve", "find", "knn"),
    *("match", "fetch", "get", "scroll"),
)
_TOOL_NAMES = (
    *("tool.name", "gen_ai.tool.name", "traceloop.entity.name"),
    *("ai.toolCall.name", "spring.ai.tool.definition.name"),
)
_KINDS = (
    *("openinference.span.kind", "traceloop.span.kind", "gen_ai.operation.name"),
    *("langfuse.observation.type", "mlflow.spanType"),
)
_MAX_QUESTION_SPANS = 100  # spans searched for the question; real traces have it among three


def annotate_tree(root: SpanNode, tool_names: Container[str] = ()) -> None:
    """Mark retrievals, tools of the given names included, and count them and model calls."""
    nodes = list(root.walk())
    inside: set[int] = set()  # nodes below a retrieval: not the request's own
    for node in nodes:
        node.is_retrieval = _is_retrieval(node, tool_names)
        parent = node.parent
        if parent is not None and (parent.is_retrieval or id(parent) in inside):
            inside.add(id(node))
    for node in reversed(nodes):
        node.retrievals = node.calls = node.first_retrieval = node.last_call = 0
        for child in node.children:
            node.retrievals += child.retrievals
            node.calls += child.calls
            node.last_call = max(node.last_call, child.last_call)
            starts = (node.first_retrieval, child.first_retrieval)
            node.first_retrieval = min(starts) or max(starts)  # 0: none
        if id(node) in inside:
            node.retrievals = node.first_retrieval = 0
        elif node.is_retrieval:  # counts once, whatever is below it
            node.retrievals, node.first_retrieval = 1, max(node.start, 1)
        if node.role is SpanRole.LLM and id(node) not in inside:
            node.calls += 1
            node.last_call = max(node.last_call, last_retrieval_moment(node))


def last_retrieval_moment(call: SpanNode) -> int:
    """Return the latest time at which a retrieval may begin to be seen by a model call.

    A call that ends as the retrieval begins has not seen it, unless the call takes no time.
    """
    return max(call.end - 1, call.start, 1)


def find_requests(root: SpanNode) -> list[SpanNode]:
    """Return the requests of an annotated tree, in order of time."""
    requests = _find_below(root, _is_whole_request) or _find_below(root, _is_request_part)
    return sorted(requests, key=SpanNode.time_order)


def _is_retrieval(node: SpanNode, tool_names: Container[str]) -> bool:
    content = node.preview
    if content.role is SpanRole.RETRIEVER:
        return True
    if content.role is SpanRole.VECTOR_DB:
        return content.documents is not None or _reads_database(node)
    if content.role is SpanRole.TOOL and content.documents is not None and node.span is not None:
        values = [node.span.attributes.get(key) for key in _TOOL_NAMES]
        # the last word: GenAI conventions name the span "execute_tool search"
        values += [node.span.name, node.span.name.rpartition(" ")[2]]
        return any(isinstance(name, str) and name in tool_names for name in values)
    return False


def _reads_database(node: SpanNode) -> bool:
    if node.span is None:
        return False
    for key in ("db.operation.name", "db.operation"):
        operation = node.span.attributes.get(key)
        if isinstance(operation, str):
            return any(name in operation.lower() for name in _READ_OPERATIONS)
    return False


def _find_below(root: SpanNode, holds: Callable[[SpanNode], bool]) -> list[SpanNode]:
    requests: list[SpanNode] = []
    stack = [root]
    while stack:
        node = stack.pop()
        parts = [child for child in node.children if holds(child)]
        if not parts:
            if holds(node):
                requests.append(node)
        elif holds(node) and _is_request(node, parts, holds is _is_whole_request):
            requests.append(node)
        else:
            stack += parts
            requests += _failed_siblings(parts, node)
    return requests


def _is_whole_request(node: SpanNode) -> bool:
    """Return whether a subtree retrieves and answers.

    A call that ended before the first retrieval began has only rewritten the question.
    """
    if not node.retrievals:
        return False
    if node.role is SpanRole.RETRIEVER:  # retrieve and generate in one span
        content = node.content()
        answer = content.answer
        if content.query is None or answer is None or not content.documents:
            return False
        return not any(document.text and document.text in answer for document in content.documents)
    return node.calls > 0 and node.last_call >= node.first_retrieval


def _is_request_part(node: SpanNode) -> bool:
    return bool(node.retrievals or node.calls)


def _is_request(node: SpanNode, parts: list[SpanNode], whole: bool) -> bool:
    """Return whether a span is one request, though parts of it could be requests themselves."""
    is_application = node.span is not None and node.role is not SpanRole.OTHER
    if is_application and (len(parts) == 1 or _has_content(node) or _is_agent(node)):
        return True
    if len(parts) == 1 or (whole and node.parent is None):
        return False  # the server above a request; several roots in one trace
    if not whole and not all(part.role is SpanRole.CHAIN and _has_content(part) for part in parts):
        return True  # calls side by side, not requests
    return len({_question(part) for part in parts} - {None}) <= 1


def _has_content(node: SpanNode) -> bool:
    """Return whether a span has a question or an answer of its own, possibly hidden ones."""
    content = node.content()
    values = (content.query, content.answer, content.query_gap, content.answer_gap)
    return any(value is not None for value in values)


def _is_agent(node: SpanNode) -> bool:
    """Return whether a span is one run of an agent or workflow."""
    if node.span is None:
        return False
    kinds = (node.span.attributes.get(key) for key in _KINDS)
    return any(
        isinstance(kind, str) and ("agent" in kind.lower() or kind == "invoke_workflow")
        for kind in kinds
    )


def _question(node: SpanNode) -> str | None:
    """Return the question of the topmost span that has one."""
    queries = (below.content().query for below in islice(node.walk(), _MAX_QUESTION_SPANS))
    return next((query for query in queries if query is not None), None)


def _failed_siblings(parts: list[SpanNode], node: SpanNode) -> list[SpanNode]:
    """Return siblings of requests with the name of one: they failed before they were complete."""
    names = {part.span.name for part in parts if part.span is not None}
    part_ids = {id(part) for part in parts}
    return [
        child
        for child in node.children
        if id(child) not in part_ids
        and child.span is not None
        and child.span.name in names
        and child.role is SpanRole.CHAIN
        and _is_request_part(child)
    ]
