"""Build a tree from the spans of a trace, without duplicates or cycles and with one root.

Parents may be missing (remote, sampled away, lost, not ended yet), spans arrive twice and in any
order, and ids may name each other in circles. The tree depends on the spans alone, never on the
order in which they arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ragmeter.ingest.conventions.registry import preview_span, read_span
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import Span, is_evaluation_span, is_own_span


@dataclass(slots=True, eq=False)
class SpanNode:
    """A span in the tree of its trace.

    The counts are filled in by `boundaries.annotate_tree`. Times are Unix nanoseconds.

    Attributes:
        span: None for the root and for a missing parent that several spans name.
        preview: Content of the span, possibly without question and answer; `content` has all.
        is_retrieval: Whether the span is a retrieval of its own.
        retrievals: Number of top-level retrievals in this subtree, the node included.
        first_retrieval: Start of the first of them; 0 without any.
        calls: Number of model calls in this subtree that no retriever makes for itself.
        last_call: Latest time at which one of them may have seen what was retrieved.
    """

    span: Span | None
    preview: SpanContent
    parent: SpanNode | None = None
    children: list[SpanNode] = field(default_factory=list)
    is_retrieval: bool = False
    retrievals: int = 0
    first_retrieval: int = 0
    calls: int = 0
    last_call: int = 0

    def content(self) -> SpanContent:
        """Return the whole content, which is read on the first call."""
        if self.preview.light and self.span is not None:
            self.preview = read_span(self.span)
        return self.preview

    @property
    def role(self) -> SpanRole:
        """Role of the span."""
        return self.preview.role

    @property
    def span_id(self) -> str:
        """Id of the span; empty for a missing span."""
        return self.span.span_id if self.span is not None else ""

    @property
    def start(self) -> int:
        """Start of the span; 0 for a missing span."""
        return self.span.start if self.span is not None else 0

    @property
    def end(self) -> int:
        """End of the span, never before its start; 0 for a missing span."""
        return max(self.span.end, self.span.start) if self.span is not None else 0

    def walk(self) -> Iterator[SpanNode]:
        """Yield the node and all below it, parents first, children by time."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.children:
                stack += reversed(node.children)

    def ancestors(self) -> Iterator[SpanNode]:
        """Yield the nodes above this one, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def first_span(self) -> Span | None:
        """Return the topmost span of the subtree, None for a subtree without spans."""
        return next((node.span for node in self.walk() if node.span is not None), None)

    def time_order(self) -> tuple[int, int, str]:
        """Return a sort key by time; a missing parent begins with its first child."""
        span = self.first_span()
        return (span.start, span.end, span.span_id) if span is not None else (0, 0, "")


@dataclass(slots=True)
class SpanTree:
    """The tree of one trace.

    Attributes:
        root: Node without a span; its children are the roots of the trace.
        own: Number of subtrees left out because ragmeter sent them.
        evaluators: Number of subtrees left out because they carry evaluations.
    """

    root: SpanNode
    own: int = 0
    evaluators: int = 0

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
    root = SpanNode(None, SpanContent())
    absent: dict[str, SpanNode] = {}
    for node in nodes.values():
        parent_id = node.span.parent_id if node.span is not None else ""
        parent = nodes.get(parent_id)
        if not parent_id or parent is node:
            parent = root
        elif parent is None:
            # spans that name the same parent belong together, even if it never arrives
            parent = absent.setdefault(parent_id, SpanNode(None, SpanContent(), root))
        node.parent = parent
    _break_cycles(nodes, root)
    for node in nodes.values():
        if node.parent is not None:
            node.parent.children.append(node)  # in order of time, as `nodes` is
    root.children = sorted([*root.children, *absent.values()], key=SpanNode.time_order)
    tree = SpanTree(root)
    _read_spans(tree)
    return tree


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
            span = child.span
            if span is None:
                remaining.append(child)
                continue
            if is_own_span(span):
                tree.own += 1
                continue
            child.preview = preview_span(span)
            if child.role is SpanRole.EVALUATOR or is_evaluation_span(span):
                tree.evaluators += 1
            else:
                remaining.append(child)
        node.children = remaining
