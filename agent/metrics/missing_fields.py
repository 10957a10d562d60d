"""Hide fields that a trace names as missing from the scorers, and restore the reason in the scores.

A hidden answer is no empty answer, and a passage that was cut supports less than was retrieved.
So a scorer sees a field that `Trace.missing` names as not captured, whatever text is there, and
the gap that it then reports gets the reason that the trace gives.
"""

from __future__ import annotations

from typing import Any

from ragmeter.core.score import Score, ScoreState
from ragmeter.trace import Trace

TEXT_ONLY_REASONS = frozenset(("passages_id_only", "resolver_error", "resolver_timeout"))
"""Reasons that speak of texts alone: which passages there were is known, and so which citation
names none of them."""

# What scorers say of a field that is not there.
_QUERY, _PASSAGES, _TEXT = "no_query", "no_passages_captured", "no_text"
_OF_PASSAGES = frozenset(
    (
        "relevance",
        "precision_at_k",
        "average_precision_at_k",
        "reciprocal_rank",
        "ndcg_at_k",
        "context_relevancy",
        "context_precision",
        "context_recall",
    )
)
"""Metrics that read no answer: where they miss a text, it is that of the passages."""


def hide_missing_fields(trace: Trace) -> Trace:
    """The trace as a scorer may see it: without what `missing` names."""
    missing = trace.missing
    if not missing:
        return trace
    without: dict[str, Any] = dict.fromkeys(missing)
    if missing.get("passages") in TEXT_ONLY_REASONS and trace.passages:
        bare = [one.model_copy(update={"text": None}) for one in trace.passages]
        without["passages"] = bare
    return trace.model_copy(update=without)


def _field(score: Score, trace: Trace) -> str | None:
    """The field whose absence a score reports."""
    if score.reason == _QUERY:
        return "query"
    if score.reason == _PASSAGES:
        return "passages"
    if score.reason == _TEXT:
        if score.metric.partition(":")[0] in _OF_PASSAGES:
            return "passages"
        return "answer" if trace.answer is None or "answer" in trace.missing else "passages"
    return None


def restore_missing_reasons(trace: Trace, scores: list[Score]) -> list[Score]:
    """The same scores; what is unscored for want of a field gets the reason of the trace."""
    if trace.missing:
        for score in scores:
            if score.state is ScoreState.UNSCORED:
                reason = trace.missing.get(_field(score, trace) or "")
                if reason is not None:
                    score.reason = reason
    return scores
