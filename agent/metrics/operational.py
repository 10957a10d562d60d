"""Operational metrics: errors, timeouts, empty answers, tokens and cost."""

from __future__ import annotations

from ragmeter.core.score import Score, make_not_applicable, make_scored, make_unscored
from ragmeter.trace import Trace


def has_empty_answer(trace: Trace) -> bool | None:
    """Return whether a successful trace has an empty answer; None if that is unknown.

    Tracing often leaves texts out, so an absent answer is empty only if the usage reports 0 output
    tokens. A hidden answer is unknown, a truncated one is not empty.
    """
    if "answer" in trace.missing:
        cut = trace.missing["answer"] == "answer_truncated" and (trace.answer or "").strip()
        return False if cut else None
    if trace.answer is not None:
        return not trace.answer or trace.answer.isspace()
    if trace.usage is not None and trace.usage.output_tokens == 0:
        return True
    return None


def _reported(metric: str, trace: Trace, value: float | None) -> Score:
    if value is None:
        return make_unscored(metric, trace, "not_reported")
    return make_scored(metric, trace, float(value))


def score_operational(trace: Trace) -> list[Score]:
    """Return the scores of all operational metrics."""
    status = trace.status
    if status != "ok":
        empty = make_not_applicable("empty_answer", trace, status)
    else:
        blank = has_empty_answer(trace)
        if blank is None:
            empty = make_unscored("empty_answer", trace, "no_text")
        else:
            empty = make_scored("empty_answer", trace, 1.0 if blank else 0.0)
    usage = trace.usage
    return [
        make_scored("error", trace, 1.0 if status == "error" else 0.0),
        make_scored("timeout", trace, 1.0 if status == "timeout" else 0.0),
        empty,
        _reported("input_tokens", trace, None if usage is None else usage.input_tokens),
        _reported("output_tokens", trace, None if usage is None else usage.output_tokens),
        _reported("cost_usd", trace, None if usage is None else usage.cost_usd),
    ]
