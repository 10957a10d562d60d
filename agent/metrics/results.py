"""Short ways to build a `Score` of the built-in scorer, and who may be scored at all."""

from __future__ import annotations

from typing import Any

from agent.trace import Score, State, Trace

__all__ = ["BUILTIN", "not_applicable", "scored", "standing", "unscored"]

BUILTIN = "builtin"


def scored(metric: str, trace: Trace, value: float, detail: dict[str, Any] | None = None) -> Score:
    """A value, taken under the trace's upstream inclusion probability."""
    return Score(metric, BUILTIN, State.SCORED, value, None, trace.probability, detail)


def not_applicable(metric: str, trace: Trace, reason: str) -> Score:
    """The metric has no meaning for this trace: it counts as seen and enters no estimate."""
    return Score(metric, BUILTIN, State.NOT_APPLICABLE, None, reason, trace.probability)


def unscored(metric: str, trace: Trace, reason: str) -> Score:
    """The metric has a meaning here, but what it needs was not captured or not understood."""
    return Score(metric, BUILTIN, State.UNSCORED, None, reason, trace.probability)


def standing(metric: str, trace: Trace, answered: float | None) -> Score | None:
    """Why a metric of answers can't be scored on this trace; None where it can.

    `answered` is the verdict of `agent.metrics.answered.verdict`: 1, 0, or None where the answer
    was not captured.
    """
    if trace.status != "ok":
        return not_applicable(metric, trace, trace.status)
    if answered is None:
        return unscored(metric, trace, "no_text")
    if not answered:
        empty = trace.answer is None or not trace.answer.strip()
        return not_applicable(metric, trace, "empty_answer" if empty else "no_answer")
    return None
