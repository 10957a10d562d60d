"""What the calls of one request cost: each once, though two instrumentors may have seen it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from agent.ingest.conventions.reading import Role
from agent.ingest.tree import Node

__all__ = ["used"]

_ALIKE = 8  # calls with the same numbers that the next is compared with


def used(nodes: Sequence[Node]) -> tuple[int | None, int | None, float | None]:
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


def _tokens(node: Node) -> Hashable | None:
    numbers = (node.reading.input_tokens, node.reading.output_tokens)
    return None if numbers == (None, None) else numbers


def _cost(node: Node) -> Hashable | None:
    return node.reading.cost_usd


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(sum(known), 2**53) if known else None


def _distinct(nodes: Sequence[Node], tells: Callable[[Node], Hashable | None]) -> list[Node]:
    """Calls that tell something, without those that are seen by another span too: one below it,
    or one beside it at the same time with the same numbers from another instrumentor. `nodes` has
    parents first."""
    tops = []
    counted: set[int] = set()  # and all below them
    for one in nodes:
        if id(one.parent) in counted:
            counted.add(id(one))
        elif one.role is Role.LLM and tells(one) is not None:
            counted.add(id(one))
            tops.append(one)
    kept: list[Node] = []
    by_numbers: dict[Hashable | None, list[Node]] = {}
    for one in sorted(tops, key=lambda each: (each.start, -each.end, _span_id(each))):
        alike = by_numbers.setdefault(tells(one), [])
        if not any(_same_call(old, one) for old in alike[-_ALIKE:]):
            kept.append(one)
            alike.append(one)
    return kept


def _same_call(one: Node, other: Node) -> bool:
    if one.span is None or other.span is None or one.span.scope == other.span.scope:
        return False
    inside = one.start <= other.start and other.end <= one.end
    around = other.start <= one.start and one.end <= other.end
    return inside or around


def _span_id(node: Node) -> str:
    return node.span.span_id if node.span is not None else ""
