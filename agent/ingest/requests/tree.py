"""Build a sound tree from the spans of a trace: no duplicates, no cycles, one root.

What arrives is none of that: parents may be missing (remote, sampled away, lost, not ended yet),
spans come twice and in any order, and ids may name each other in circles. The result depends on
the spans alone, never on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ragmeter.ingest.conventions.registry import preview_span, read_span
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import Span, is_evaluation_span, is_own_span


@dataclass(slots=True, eq=False)
class SpanNode:
    """A span with what it says. `span` is None for a parent that is not there: the one that
    several spans name, and the root over all."""

    span: Span | None
    reading: SpanContent
    """Perhaps a light one: what it was asked and answers is to be had from `content`."""
    parent: SpanNode | None = None
    children: list[SpanNode] = field(default_factory=list)
    is_search: bool = False
    """Whether the span is a retrieval of its own."""
    searches: int = 0
    """Top-level retrievals in this subtree, the node itself included."""
    first_search: int = 0
    calls: int = 0
    """Calls of models in this subtree that no retriever makes for itself."""
    last_call: int = 0
    """Until when the last of them may have seen what was retrieved."""

    def content(self) -> SpanContent:
        """The whole reading."""
        if self.reading.light and self.span is not None:
            self.reading = read_span(self.span)
        return self.reading

    @property
    def role(self) -> SpanRole:
        return self.reading.role

    @property
    def start(self) -> int:
        return self.span.start if self.span is not None else 0

    @property
    def end(self) -> int:
        return max(self.span.end, self.span.start) if self.span is not None else 0

    def walk(self) -> Iterator[SpanNode]:
        """The node and all below it, parents first, children by time."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.children:
                stack += reversed(node.children)

    def ancestors(self) -> Iterator[SpanNode]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


@dataclass(slots=True)
class SpanTree:
    """`root` is no span: the trace's own roots are its children. `own` and `evaluators` count the
    subtrees that were left out."""

    root: SpanNode
    own: int = 0
    evaluators: int = 0

    def release(self) -> None:
        """Takes the tree apart. Parents and children hold each other, and what is held in a circle
        waits for the garbage collector, which costs as much as counting and cutting."""
        for node in list(self.root.walk()):
            node.parent = None
            node.children = []


def _richness(span: Span) -> tuple[int, int, int, str]:
    """Of two spans with one id the later and fuller counts; the text settles the rest."""
    return (
        span.end,
        len(span.attributes) + len(span.events),
        span.status,
        repr((span.start, span.name, span.parent_id, sorted(span.attributes))),
    )


def _unique(spans: Iterable[Span]) -> list[Span]:
    best: dict[str, Span] = {}
    for span in spans:
        known = best.get(span.span_id)
        if known is None or (known is not span and _richness(span) > _richness(known)):
            best[span.span_id] = span
    return sorted(best.values(), key=lambda span: (span.start, span.end, span.span_id))


def _order(node: SpanNode) -> tuple[int, int, str]:
    """By time; a parent that is not there begins with its first child."""
    span = node.span if node.span is not None else node.children[0].span
    return (span.start, span.end, span.span_id) if span is not None else (0, 0, "")


def build_span_tree(spans: Sequence[Span]) -> SpanTree:
    """The tree of the spans of one trace, each read once, some without content yet."""
    nodes = {span.span_id: SpanNode(span, SpanContent()) for span in _unique(spans)}
    root = SpanNode(None, SpanContent())
    absent: dict[str, SpanNode] = {}
    for node in nodes.values():
        parent_id = node.span.parent_id if node.span is not None else ""
        parent = nodes.get(parent_id)
        if not parent_id or parent is node:
            parent = root
        elif parent is None:
            # spans that name the same parent belong together, whether it ever comes or not
            parent = absent.setdefault(parent_id, SpanNode(None, SpanContent(), root))
        node.parent = parent
    _break_cycles(nodes, root)
    for node in nodes.values():
        if node.parent is not None:
            node.parent.children.append(node)  # in order of time, as `nodes` is
    root.children = sorted([*root.children, *absent.values()], key=_order)
    tree = SpanTree(root)
    _read(tree)
    return tree


def _break_cycles(nodes: dict[str, SpanNode], root: SpanNode) -> None:
    """Of spans that are their own ancestors the earliest becomes a root."""
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
            min(path[path.index(node) :], key=_order).parent = root
        sound |= seen


def _read(tree: SpanTree) -> None:
    """Reads every span, and leaves out our own and evaluations with all below them: what judges
    an answer is none, and whoever scored it would score scores."""
    for node in tree.root.walk():
        kept = []
        for child in node.children:
            span = child.span
            if span is None:
                kept.append(child)
                continue
            if is_own_span(span):
                tree.own += 1
                continue
            child.reading = preview_span(span)
            if child.reading.role is SpanRole.EVALUATOR or is_evaluation_span(span):
                tree.evaluators += 1
            else:
                kept.append(child)
        node.children = kept
