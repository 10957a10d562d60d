"""What the calls of one request cost: each once, though two instrumentors may have seen it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.ingest.conventions.reading import Role
from agent.ingest.tree import Node

__all__ = ["used"]


def used(node: Node) -> tuple[int | None, int | None, float | None]:
    """Tokens in and out and USD of a request, None where nobody says."""
    calls = _distinct([one for one in node.walk() if one.role is Role.LLM])
    sources = calls
    if not any(_tells(one) for one in calls):
        # a framework may add them up itself, on its agent or chain
        sources = [next((one for one in node.walk() if _tells(one)), node)]
    tokens_in = _sum([one.reading.input_tokens for one in sources])
    tokens_out = _sum([one.reading.output_tokens for one in sources])
    costs = [one.reading.cost_usd for one in sources if one.reading.cost_usd is not None]
    cost = sum(costs) if costs else node.reading.cost_usd
    return tokens_in, tokens_out, cost


def _tells(node: Node) -> bool:
    reading = node.reading
    return any(
        value is not None
        for value in (reading.input_tokens, reading.output_tokens, reading.cost_usd)
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(sum(known), 2**53) if known else None


def _distinct(calls: list[Node]) -> list[Node]:
    """Calls that tell something, without those that are seen by another span too: one below it,
    or one beside it at the same time with the same numbers from another instrumentor."""
    telling = [one for one in calls if _tells(one)]
    ids = {id(one) for one in telling}
    tops = [one for one in telling if not any(id(up) in ids for up in one.ancestors())]
    kept: list[Node] = []
    by_numbers: dict[tuple[int | None, int | None], list[Node]] = {}
    for one in sorted(tops, key=lambda each: (each.start, -each.end, _span_id(each))):
        alike = by_numbers.setdefault((one.reading.input_tokens, one.reading.output_tokens), [])
        twin = next((old for old in alike[-8:] if _same_call(old, one)), None)
        if twin is None:
            kept.append(one)
            alike.append(one)
        elif twin.reading.cost_usd is None and one.reading.cost_usd is not None:
            kept[kept.index(twin)] = one  # only one of them knows the price
    return kept


def _same_call(one: Node, other: Node) -> bool:
    if one.span is None or other.span is None or one.span.scope == other.span.scope:
        return False
    inside = one.start <= other.start and other.end <= one.end
    around = other.start <= one.start and one.end <= other.end
    return inside or around


def _span_id(node: Node) -> str:
    return node.span.span_id if node.span is not None else ""
