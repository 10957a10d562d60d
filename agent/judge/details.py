"""What the scores of a judge carry beside their value: bounded evidence for one who looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.judge.autonuggetizer import Nuggets
from agent.judge.umbrela import MAX_PASSAGES
from agent.metrics.cited import WHOLE, Instance
from agent.metrics.results import Gap

__all__ = ["grades_detail", "nuggets_detail", "pairs_detail"]

MAX_DETAIL_PAIRS = 20
MAX_DETAIL_TEXT = 120  # characters of a nugget that a result carries


def grades_detail(grades: Sequence[int | Gap]) -> dict[str, Any]:
    """Grades in the order of the trace, and for each reason the passages without one."""
    shown = grades[:MAX_PASSAGES]
    detail: dict[str, Any] = {"grades": [None if isinstance(g, Gap) else g for g in shown]}
    missing: dict[str, list[int]] = {}
    for index, grade in enumerate(shown):
        if isinstance(grade, Gap):
            missing.setdefault(grade.reason, []).append(index)
    if missing:
        detail["missing"] = missing
    return detail


def pairs_detail(
    supports: Mapping[Instance, float | Gap], dangling: int, ids: Sequence[str]
) -> dict[str, Any]:
    """The support of each citation; `sentence` is None for one of the whole answer."""
    detail: dict[str, Any] = {"pairs": []}
    for instance, value in list(supports.items())[:MAX_DETAIL_PAIRS]:
        pair: dict[str, Any] = {
            "sentence": None if instance.statement == WHOLE else instance.statement,
            "passage_id": ids[instance.passage],
            "support": None if isinstance(value, Gap) else value,
        }
        if isinstance(value, Gap):
            pair["reason"] = value.reason
        detail["pairs"].append(pair)
    if dangling:
        detail["dangling"] = dangling
    missing = sum(isinstance(value, Gap) for value in supports.values())
    if missing:
        detail["missing"] = missing
    return detail


def nuggets_detail(found: Nuggets) -> dict[str, Any]:
    """The nuggets with their labels; a label that is missing is None."""
    kinds: Sequence[str | None]
    kinds = [None] * len(found.texts) if isinstance(found.importance, Gap) else found.importance
    return {
        "nuggets": [
            {
                "text": text[:MAX_DETAIL_TEXT],
                "importance": kind,
                "support": None if isinstance(support, Gap) else support,
            }
            for text, kind, support in zip(found.texts, kinds, found.supports, strict=True)
        ],
        "created": found.created,
    }
