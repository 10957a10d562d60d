"""What scorers see of a trace: its answer as it was read, and no field that it names as missing.

A hidden answer is not an empty one, and a truncated passage supports less than was retrieved. So
scorers see a field that `Trace.missing` names as not captured, whatever text is there, and the
reason that they report is replaced by that of the trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ragmeter.core.score import Score, ScoreState
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

# Reasons that concern texts alone: the passages' ids are known, so citations can be resolved.
TEXT_ONLY_REASONS = frozenset(
    (Reason.PASSAGES_ID_ONLY, Reason.RESOLVER_ERROR, Reason.RESOLVER_TIMEOUT)
)

# The reasons of scorers for a field that is absent.
_QUERY = Reason.NO_QUERY
_PASSAGES = Reason.NO_PASSAGES_CAPTURED
_TEXT = Reason.NO_TEXT
# Metrics that read no answer: the text that they miss is that of passages.
_PASSAGE_METRICS = frozenset(
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


def visible_trace(trace: Trace) -> Trace:
    """Return the trace as scorers see it, without the fields that its `missing` names.

    Of an answer that is JSON they see the text of its field.
    """
    trace = trace.as_read()
    missing = trace.missing
    if not missing:
        return trace
    without: dict[str, Any] = dict.fromkeys(missing)
    if missing.get("passages") in TEXT_ONLY_REASONS and trace.passages:
        bare = [one.model_copy(update={"text": None}) for one in trace.passages]
        without["passages"] = bare
    return trace.model_copy(update=without)


def _field(score: Score, trace: Trace) -> str | None:
    if score.reason == _QUERY:
        return "query"
    if score.reason == _PASSAGES:
        return "passages"
    if score.reason == _TEXT:
        if score.metric.partition(":")[0] in _PASSAGE_METRICS:
            return "passages"
        return "answer" if trace.answer is None or "answer" in trace.missing else "passages"
    return None


def restore_missing_reasons(trace: Trace, scores: list[Score]) -> list[Score]:
    """Return the scores, with the trace's reason on those that miss a field it names."""
    if trace.missing:
        for at, score in enumerate(scores):
            if score.state is ScoreState.UNSCORED:
                reason = trace.missing.get(_field(score, trace) or "")
                if reason is not None:
                    scores[at] = replace(score, reason=reason)
    return scores
