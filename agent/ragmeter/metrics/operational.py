"""Operational metrics: errors, timeouts, empty answers, tokens and cost."""

from __future__ import annotations

from ragmeter.core.score import NoScore, Score, make_plain_score, make_scored
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_NO_TEXT = NoScore(Reason.NO_TEXT)
_NOT_REPORTED = NoScore(Reason.NOT_REPORTED)


def has_empty_answer(trace: Trace) -> bool | None:
    """Return whether a successful trace has an empty answer; None if that is unknown.

    Tracing often leaves texts out, so an absent answer is empty only if the usage reports 0 output
    tokens. A hidden answer is unknown, a truncated one is not empty.
    """
    if "answer" in trace.missing:
        cut = trace.missing["answer"] == Reason.ANSWER_TRUNCATED and (trace.answer or "").strip()
        return False if cut else None
    answer = trace.answer_text
    if answer is not None:
        return not answer or answer.isspace()
    if trace.usage is not None and trace.usage.output_tokens == 0:
        return True
    return None


def _reported(metric: str, trace: Trace, value: float | None) -> Score:
    if value is None:
        return make_plain_score(metric, trace.probability, _NOT_REPORTED)
    return make_scored(metric, trace, float(value))


def score_operational(trace: Trace) -> list[Score]:
    """Return the scores of all operational metrics."""
    status = trace.status
    probability = trace.probability
    if status != "ok":
        empty: float | NoScore = NoScore(status, applies=False)
    else:
        blank = has_empty_answer(trace)
        empty = _NO_TEXT if blank is None else float(blank)
    usage = trace.usage
    reason = trace.finish_reason
    return [
        make_plain_score("error", probability, float(status == "error")),
        make_plain_score("timeout", probability, float(status == "timeout")),
        make_plain_score("empty_answer", probability, empty),
        _reported("cut_answer", trace, None if reason is None else float(reason == "length")),
        _reported(
            "filtered_answer", trace, None if reason is None else float(reason == "content_filter")
        ),
        _reported("input_tokens", trace, None if usage is None else usage.input_tokens),
        _reported("output_tokens", trace, None if usage is None else usage.output_tokens),
        _reported("cost_usd", trace, None if usage is None else usage.cost_usd),
    ]
