"""The order in which people are shown the metrics: quality, then operation, then use."""

from __future__ import annotations

from agent.metrics.names import base

__all__ = ["GROUPS", "MORE", "rank"]

GROUPS = {
    "Quality": (
        "grounding",
        "relevance",
        "answered",
        "precision_at_k",
        "average_precision_at_k",
        "reciprocal_rank",
        "ndcg_at_k",
        "nugget_all",
        "nugget_all_strict",
        "nugget_vital",
        "nugget_vital_strict",
        "nugget_weighted",
        "nugget_weighted_strict",
        *("faithfulness", "answer_relevancy", "groundedness_grade", "correctness_grade"),
        *("groundedness", "context_relevancy", "context_precision", "context_recall"),
        "citation_f1",
        "citation_precision",
        "citation_recall",
        "citation_passage_f1",
        "citation_passage_precision",
        "citation_presence",
        "citation_fabricated",
        "source_indicators",
    ),
    "Labels": (
        *("helpfulness", "proper_action", "on_topic", "incompleteness", "unsafe_content"),
        *("grounding_presence", "unsupported_claim", "contradiction"),
        *("topical_precision_at_k", "sufficiency_hit_at_k", "sufficiency_rate_at_k"),
        "misleading_context_rate_at_k",
    ),
    "Canaries": (
        *("answer_correctness", "fact_checks", "fact_coverage", "calculation"),
        *("calculation_steps", "exact_match", "keyword_coverage", "number_match"),
        *("list_coverage", "answer_completeness", "recall_any_at_k", "recall_all_at_k"),
        *("reciprocal_rank_at_k", "attribution_hit", "abstention_accuracy"),
        *("unanswerable_hallucination", "conflict_handled", "scope_miss"),
        *("canary_failed", "canary_seconds"),
    ),
    "Operation": ("error", "timeout", "empty_answer"),
    "Judge": ("judge_disagreement", "judge_probe_agreement", "judge_probe_change"),
    "Use": ("input_tokens", "output_tokens", "cost_usd"),
}
"""Sections in the order of the question "how good are the answers"."""

MORE = "More"
"""The section of metrics that belong to none of these."""

_RANK = {name: rank for rank, name in enumerate(n for group in GROUPS.values() for n in group)}


def rank(metric: str) -> int:
    """The place of a metric on the page and in the table; metrics of no group come last."""
    return _RANK.get(base(metric), len(_RANK))
