"""Build the tree of a trace's spans, and decide which of them are requests.

Parents may be missing (remote, sampled away, lost, not ended yet), spans arrive twice and in any
order, and ids may name each other in circles. The tree has one root and depends on the spans alone,
never on the order in which they arrived.

Requests are the topmost spans that retrieve and answer. A server or queue span above one lends it
its status and time. A job over many questions is not a request, its children are; an agent that
retrieves repeatedly is one request. If no span both retrieves and answers, whatever does either
counts: a chat without retrieval, a failed retrieval.

Agents retrieve by tools, and no convention marks those that do. So a tool counts whose name looks
like a retrieval, or whose result is a list of texts; the settings `otlp.tool_names` and
`otlp.excluded_tools` decide otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.functions import (
    asks,
    asks_and_answers,
    does_other_work,
    is_given_answer,
)
from ragmeter.ingest.conventions.registry import preview_span, read_span
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
    has_texts,
)
from ragmeter.ingest.conventions.tool_results import read_hosted_documents
from ragmeter.ingest.conventions.values import key_list, key_set
from ragmeter.ingest.spans import Span, is_evaluation_span, is_own_span
from ragmeter.reasons import Reason

# spans searched below one for a question or a model call; real traces have it among three
_MAX_SEARCHED = 100
MISSING = Span("", "")  # in the place of a span that is not there


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_MAX_NAME = 200  # characters of a tool's name
# Words that a text of a list has on average, at least. Lists of names and categories have two or
# three, sentences of a knowledge base ten and more.
_MIN_WORDS = 4


class ToolUse(StrEnum):
    """What a tool's result is to the request, and how that is known."""

    NAMED = "named"  # passages, by the settings
    LIKELY = "likely"  # passages, by its name or its form
    OTHER = "other"  # something else


def tool_name(span: Span) -> str:
    """Return the name of a tool: that of an attribute, else the last word of the span's name."""
    values = (span.attributes.get(key) for key in key_list("tool_names"))
    name = next((value for value in values if isinstance(value, str) and value), None)
    # GenAI conventions name the span "execute_tool search"
    return (name or span.name.rpartition(" ")[2])[:_MAX_NAME]


def classify_tool(
    span: Span, documents: Sequence[RetrievedDocument], settings: OtlpSettings
) -> ToolUse:
    """Return what a tool with a result that can be read as documents is."""
    names = {tool_name(span), span.name[:_MAX_NAME]}
    if span.status == 2 and not _is_listed(names, settings.tool_names):
        return ToolUse.OTHER
    return classify_result(tool_name(span), documents, settings, names)


def classify_result(
    name: str,
    documents: Sequence[RetrievedDocument],
    settings: OtlpSettings,
    names: set[str] | None = None,
) -> ToolUse:
    """Return what the result of a tool is, by its name and form; `names` are all that it has."""
    names = {name} if names is None else names
    if _is_listed(names, settings.tool_names):
        return ToolUse.NAMED
    if _is_listed(names, settings.excluded_tools):
        return ToolUse.OTHER
    words = [word.lower() for word in _WORD.findall(name)]
    searches, writes = _find_verbs(words)
    if searches or (not writes and _are_texts(documents)):
        return ToolUse.LIKELY
    return ToolUse.OTHER


def _is_listed(names: set[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _find_verbs(words: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a name tells a retrieval, and whether it tells something else before that."""
    for n, word in enumerate(words):
        if word in key_set("other_tools"):
            return False, True
        if "_".join(words[n : n + 2]).startswith(key_list("retrieval_tools")):
            return True, False
    return False, False


def _are_texts(documents: Sequence[RetrievedDocument]) -> bool:
    """Return whether documents are a list of texts rather than one text, or a list of names."""
    texts = [document.text for document in documents if document.text]
    if not texts or (len(documents) == 1 and not documents[0].id):
        return False
    whole = all(document.gap is not Reason.PASSAGES_ID_ONLY for document in documents)
    return whole and sum(len(text.split()) for text in texts) >= _MIN_WORDS * len(texts)


@dataclass(slots=True, eq=False)
class SpanNode:
    """A span in the tree of its trace.

    The counts are filled in by `annotate_tree`. Times are Unix nanoseconds.

    Attributes:
        span: `MISSING` for the root and for a missing parent that several spans name.
        preview: Content of the span, possibly without question and answer; `content` has all.
        is_retrieval: Whether the span is a retrieval of its own.
        tool_use: What the result of a tool is; None for any other span.
        retrievals: Number of top-level retrievals in this subtree, the node included.
        first_retrieval: Start of the first of them; 0 without any.
        calls: Number of model calls in this subtree that no retriever makes for itself.
        last_call: Latest time at which one of them may have seen what was retrieved.
    """

    span: Span
    preview: SpanContent
    parent: SpanNode | None = None
    children: list[SpanNode] = field(default_factory=list)
    is_retrieval: bool = False
    tool_use: ToolUse | None = None
    retrievals: int = 0
    first_retrieval: int = 0
    calls: int = 0
    last_call: int = 0

    def content(self) -> SpanContent:
        """Return the whole content, which is read on the first call."""
        if self.preview.light:
            self.preview = read_span(self.span)
        return self.preview

    @property
    def role(self) -> SpanRole:
        """Role of the span."""
        return self.preview.role

    @property
    def start(self) -> int:
        """Start of the span; 0 for a missing span."""
        return self.span.start

    @property
    def end(self) -> int:
        """End of the span, never before its start; 0 for a missing span."""
        return max(self.span.end, self.span.start)

    def walk(self) -> Iterator[SpanNode]:
        """Yield the node and all below it, parents first, children by time."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.children:
                stack += reversed(node.children)

    def ancestors(self) -> Iterator[SpanNode]:
        """Yield the nodes with a span above this one, the nearest first."""
        node = self.parent
        while node is not None:
            if node.span is not MISSING:
                yield node
            node = node.parent

    def first_span(self) -> Span:
        """Return the topmost span of the subtree, `MISSING` for a subtree without spans."""
        return next((node.span for node in self.walk() if node.span is not MISSING), MISSING)

    def time_order(self) -> tuple[int, int, str]:
        """Return a sort key by time; a missing parent begins with its first child."""
        span = self.first_span()
        return (span.start, span.end, span.span_id)


@dataclass(slots=True)
class SpanTree:
    """The tree of one trace, whose roots are the children of `root`, a node without a span.

    `own` and `evaluators` are subtrees left out: those that ragmeter sent, and evaluations.
    """

    root: SpanNode
    own: list[SpanNode] = field(default_factory=list)
    evaluators: list[SpanNode] = field(default_factory=list)

    def release(self) -> None:
        """Unlink all nodes, so that they are freed without the garbage collector.

        Collecting the cycles of parents and children costs as much as building the tree.
        """
        for node in list(self.root.walk()):
            node.parent = None
            node.children = []


def build_span_tree(spans: Sequence[Span]) -> SpanTree:
    """Build the tree of one trace; each span is read once, some only as a preview."""
    nodes = {span.span_id: SpanNode(span, SpanContent()) for span in _unique(spans)}
    root = SpanNode(MISSING, SpanContent())
    absent: dict[str, SpanNode] = {}
    for node in nodes.values():
        parent_id = node.span.parent_id
        parent = nodes.get(parent_id)
        if not parent_id or parent is node:
            parent = root
        elif parent is None:
            # spans that name the same parent belong together, even if it never arrives
            parent = absent.setdefault(parent_id, SpanNode(MISSING, SpanContent(), root))
        node.parent = parent
    _join_turns(nodes.values())
    _break_cycles(nodes, root)
    for node in nodes.values():
        if node.parent is not None:
            node.parent.children.append(node)  # in order of time, as `nodes` is
    root.children = sorted([*root.children, *absent.values()], key=SpanNode.time_order)
    tree = SpanTree(root)
    _read_spans(tree)
    return tree


def _join_turns(nodes: Iterable[SpanNode]) -> None:
    """Put a span that goes on with a turn below the span that began it (LiveKit)."""
    turns = {
        turn: node
        for node in nodes
        if isinstance(turn := node.span.attributes.get("lk.generation_id"), str)
    }
    for node in turns.values():
        before = turns.get(str(node.span.attributes.get("lk.parent_generation_id")))
        if before is not None and before is not node:
            node.parent = before


def _unique(spans: Iterable[Span]) -> list[Span]:
    best: dict[str, Span] = {}
    for span in spans:
        rival = best.get(span.span_id)
        if rival is None or (rival is not span and _richness(span) > _richness(rival)):
            best[span.span_id] = span
    return sorted(best.values(), key=lambda span: (span.start, span.end, span.span_id))


def _richness(span: Span) -> tuple[int, int, int, str]:
    """Rank copies of a span: the later and fuller one wins, its text settles ties."""
    return (
        span.end,
        len(span.attributes) + len(span.events),
        span.status,
        repr((span.start, span.name, span.parent_id, sorted(span.attributes))),
    )


def _break_cycles(nodes: dict[str, SpanNode], root: SpanNode) -> None:
    """Make the earliest span of every cycle a root."""
    sound = {id(root)}
    for first in nodes.values():
        path: list[SpanNode] = []
        seen: set[int] = set()
        node: SpanNode | None = first
        while node is not None and id(node) not in sound and id(node) not in seen:
            seen.add(id(node))
            path.append(node)
            node = node.parent
        if node is not None and id(node) in seen:
            min(path[path.index(node) :], key=SpanNode.time_order).parent = root
        sound |= seen


def _read_spans(tree: SpanTree) -> None:
    """Read every span; leave out subtrees of ragmeter's own spans and of evaluations.

    An evaluation is not an answer: scoring it would score scores.
    """
    for node in tree.root.walk():
        remaining = []
        for child in node.children:
            if is_own_span(child.span):
                tree.own.append(child)
                continue
            if child.span is not MISSING:
                child.preview = preview_span(child.span)
            if child.role is SpanRole.EVALUATOR or is_evaluation_span(child.span):
                tree.evaluators.append(child)
            else:
                remaining.append(child)
        node.children = remaining


def annotate_tree(root: SpanNode, settings: OtlpSettings) -> None:
    """Mark retrievals, tools that retrieve included, and count them and model calls."""
    nodes = list(root.walk())
    inside: set[int] = set()  # nodes below a retrieval: not the request's own
    for node in nodes:
        node.is_retrieval = _is_retrieval(node, settings)
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
            node.retrievals = 1
            node.first_retrieval = max(node.start, 1)
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
    requests = (
        _find_below(root, _is_whole_request)
        or _find_below(root, _is_request_part)
        or _find_runs(root, is_run)
        or _find_runs(root, answers_question)
        or _find_runs(root, fails_question, indexing=True)
    )
    return sorted(requests, key=SpanNode.time_order)


def _is_retrieval(node: SpanNode, settings: OtlpSettings) -> bool:
    content = node.preview
    if content.role is SpanRole.RETRIEVER:
        return True
    if content.role is SpanRole.VECTOR_DB:
        return content.documents is not None or _reads_database(node)
    if content.role is not SpanRole.TOOL or content.documents is None:
        return False
    node.tool_use = classify_tool(node.span, content.documents, settings)
    if node.tool_use is ToolUse.LIKELY and _is_agent_as_tool(node):
        node.tool_use = ToolUse.OTHER
    return node.tool_use is not ToolUse.OTHER


def _is_agent_as_tool(node: SpanNode) -> bool:
    """Return whether a tool gives back what a model below it has written."""
    documents = node.preview.documents
    if documents is None or len(documents) > 1:
        return False
    below = islice(node.walk(), _MAX_SEARCHED)  # tools in tools in tools
    return any(one.role is SpanRole.LLM for one in below)


def _reads_database(node: SpanNode) -> bool:
    for key in ("db.operation.name", "db.operation"):
        operation = node.span.attributes.get(key)
        if isinstance(operation, str):
            return any(name in operation.lower() for name in key_list("reading_operations"))
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


def _find_runs(
    root: SpanNode, is_one: Callable[[SpanNode], bool], *, indexing: bool = False
) -> list[SpanNode]:
    """Return the runs of agents, or functions, of which no span tells what they did.

    Indexing is none, unless with `indexing` the spans tell of a question.
    """
    nodes = list(root.walk())
    if not indexing and any(
        node.role in (SpanRole.EMBEDDING, SpanRole.VECTOR_DB) for node in nodes
    ):
        return []
    holders: set[int] = set()
    for node in reversed(nodes):
        if is_one(node) or any(id(child) in holders for child in node.children):
            holders.add(id(node))
    return _find_below(root, lambda node: id(node) in holders)


def _is_request(node: SpanNode, parts: list[SpanNode], whole: bool) -> bool:
    """Return whether a span is one request, though parts of it could be requests themselves."""
    if sum(map(_is_turn, parts)) > 1:
        return False
    if node.role is not SpanRole.OTHER and (
        len(parts) == 1 or _has_content(node) or _is_agent(node)
    ):
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


def is_run(node: SpanNode) -> bool:
    """Return whether a span is one run of an agent or of a workflow, as its framework says."""
    if node.role is not SpanRole.CHAIN:
        return False
    # Google's ADK tells an agent by the name of the span only
    return (
        _is_agent(node)
        or _is_turn(node)
        or node.preview.convention == "google_adk"
        or node.span.attributes.get("traceloop.span.kind") == "workflow"
    )


def answers_question(node: SpanNode) -> bool:
    """Return whether a span is a function that is given a question and gives back an answer."""
    if node.role is not SpanRole.CHAIN:
        return False
    return asks_and_answers(node.span) or _gives_passages(node)


def fails_question(node: SpanNode) -> bool:
    """Return whether a span is a function that failed before it had answered its question."""
    if node.role is not SpanRole.CHAIN or not (node.span.status == 2 or node.preview.failed):
        return False
    return asks(node.span) and not does_other_work(node.span.name)


def _gives_passages(node: SpanNode) -> bool:
    """Return whether a span gives back an answer with what was retrieved for it."""
    content = node.content()
    if content.query is None or not (content.answer or "").strip() or is_given_answer(node.span):
        return False
    return has_texts(read_hosted_documents(node.span, of_run=True))


def _is_agent(node: SpanNode) -> bool:
    for key in key_list("span_kinds"):
        kind = node.span.attributes.get(key)
        if isinstance(kind, str) and ("agent" in kind.lower() or kind in key_set("run_kinds")):
            return True
    return node.span.name in key_set("run_names")


def _is_turn(node: SpanNode) -> bool:
    """Return whether a span is one turn of a conversation, as its framework says."""
    return any(key in node.span.attributes for key in key_list("turn_marks"))


def _question(node: SpanNode) -> str | None:
    """Return the question of the topmost span that has one."""
    queries = (below.content().query for below in islice(node.walk(), _MAX_SEARCHED))
    return next((query for query in queries if query is not None), None)


def _failed_siblings(parts: list[SpanNode], node: SpanNode) -> list[SpanNode]:
    """Return siblings of requests with the name of one: they failed before they were complete."""
    names = {part.span.name for part in parts if part.span is not MISSING}
    part_ids = {id(part) for part in parts}
    return [
        child
        for child in node.children
        if id(child) not in part_ids
        and child.span.name in names
        and child.role is SpanRole.CHAIN
        and _is_request_part(child)
    ]
