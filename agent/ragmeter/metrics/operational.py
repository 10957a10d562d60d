"""Operational metrics: errors, timeouts, empty answers, tokens and cost."""

from __future__ import annotations

from functools import lru_cache

from ragmeter.core.score import NoScore, Score, make_plain_score
from ragmeter.reasons import Reason
from ragmeter.trace import Status, Trace

_NO_TEXT = NoScore(Reason.NO_TEXT)
_NOT_REPORTED = NoScore(Reason.NOT_REPORTED)
_USAGE = ("input_tokens", "output_tokens", "cost_usd")
_FINISHES = ("length", "content_filter")
_OTHER = "other"


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


@lru_cache(maxsize=1_024)  # a handful an inclusion probability
def _score_outcome(
    status: Status,
    empty: bool | None,
    finish: str | None,
    probability: float,
) -> tuple[Score, ...]:
    """Return the scores of how a request ended, which are the same objects for all that end so.

    Args:
        status: Its status.
        empty: As `has_empty_answer`.
        finish: Why its answer ended, `_OTHER` if no metric is of that; None if it is unknown.
        probability: Its inclusion probability.
    """
    without = NoScore(status, applies=False) if status != "ok" else _NO_TEXT
    values: dict[str, float | NoScore] = {
        "error": float(status == "error"),
        "timeout": float(status == "timeout"),
        "empty_answer": without if empty is None or status != "ok" else float(empty),
        "cut_answer": _reported(None if finish is None else finish == "length"),
        "filtered_answer": _reported(None if finish is None else finish == "content_filter"),
    }
    return tuple(make_plain_score(name, probability, value) for name, value in values.items())


def score_operational(trace: Trace) -> list[Score]:
    """Return the scores of all operational metrics."""
    status = trace.status
    probability = trace.probability
    empty = has_empty_answer(trace) if status == "ok" else None
    finish = trace.finish_reason
    if finish is not None and finish not in _FINISHES:
        finish = _OTHER  # a sender's own word
    usage = trace.usage
    used: tuple[float | None, ...] = (None, None, None)
    if usage is not None:
        used = (usage.input_tokens, usage.output_tokens, usage.cost_usd)
    return [
        *_score_outcome(status, empty, finish, probability),
        *[
            make_plain_score(name, probability, _reported(value))
            for name, value in zip(_USAGE, used, strict=True)
        ],
    ]
