"""Operational metrics: errors, timeouts, empty answers, tokens and cost."""

from __future__ import annotations

from ragmeter.core.score import NoScore, Score, make_plain_score
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


def _reported(value: float | None) -> float | NoScore:
    return _NOT_REPORTED if value is None else float(value)


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
    values: dict[str, float | NoScore] = {
        "error": float(status == "error"),
        "timeout": float(status == "timeout"),
        "empty_answer": empty,
        "cut_answer": _reported(None if reason is None else reason == "length"),
        "filtered_answer": _reported(None if reason is None else reason == "content_filter"),
        "input_tokens": _reported(None if usage is None else usage.input_tokens),
        "output_tokens": _reported(None if usage is None else usage.output_tokens),
        "cost_usd": _reported(None if usage is None else usage.cost_usd),
    }
    return [make_plain_score(name, probability, value) for name, value in values.items()]
