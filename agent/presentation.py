"""The order in which people are shown the metrics: quality, then operation, then use."""

from __future__ import annotations

__all__ = ["GROUPS", "rank"]

GROUPS = {
    "Quality": (
        "grounding",
        "relevance",
        "answered",
        "citation_f1",
        "citation_precision",
        "citation_recall",
        "citation_presence",
        "citation_fabricated",
        "source_indicators",
    ),
    "Operation": ("error", "timeout", "empty_answer"),
    "Use": ("input_tokens", "output_tokens", "cost_usd"),
}
"""Sections in the order of the question "how good are the answers"."""

_RANK = {name: rank for rank, name in enumerate(n for group in GROUPS.values() for n in group)}


def rank(metric: str) -> int:
    """The place of a metric on the page and in the table; metrics of no group come last."""
    return _RANK.get(metric, len(_RANK))
