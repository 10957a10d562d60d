"""Short ways to build a `Score`, who may be scored at all, and why a number may be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent.trace import Score, State, Trace

__all__ = [
    "BUILTIN",
    "JUDGE",
    "REFERENCE",
    "Gap",
    "hindrance",
    "not_applicable",
    "prevailing",
    "result",
    "scored",
    "standing",
    "unscored",
]

BUILTIN = "builtin"
JUDGE = "judge"
REFERENCE = "reference"
"""What a canary's reference says is right."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Where a number is missing, why. `applies` is False where there is none by nature.

    The first becomes `unscored`, the second `not_applicable`.
    """

    reason: str
    applies: bool = True


def scored(
    metric: str,
    trace: Trace,
    value: float,
    detail: dict[str, Any] | None = None,
    scorer: str = BUILTIN,
    fingerprint: str | None = None,
) -> Score:
    """A value, taken under the trace's upstream inclusion probability."""
    probability = trace.probability
    return Score(metric, scorer, State.SCORED, value, None, probability, detail, fingerprint)


def not_applicable(metric: str, trace: Trace, reason: str, scorer: str = BUILTIN) -> Score:
    """The metric has no meaning for this trace: it counts as seen and enters no estimate."""
    return Score(metric, scorer, State.NOT_APPLICABLE, None, reason, trace.probability)


def unscored(metric: str, trace: Trace, reason: str, scorer: str = BUILTIN) -> Score:
    """The metric has a meaning here, but what it needs was not captured or not understood."""
    return Score(metric, scorer, State.UNSCORED, None, reason, trace.probability)


def result(
    metric: str,
    trace: Trace,
    value: float | Gap,
    scorer: str,
    *,
    detail: dict[str, Any] | None = None,
    fingerprint: str | None = None,
) -> Score:
    """The score of a value or of the gap in its place; a gap keeps the detail, too."""
    if not isinstance(value, Gap):
        return scored(metric, trace, value, detail, scorer, fingerprint)
    score = (unscored if value.applies else not_applicable)(metric, trace, value.reason, scorer)
    score.detail = detail
    return score


def prevailing(gaps: Iterable[Gap]) -> Gap:
    """The most frequent of the gaps, the first of equals. ValueError without any."""
    counted = Counter(gaps).most_common(1)
    if not counted:
        raise ValueError("no gaps")
    return counted[0][0]


def hindrance(trace: Trace, answered: float | None) -> Gap | None:
    """Why a metric of answers can't be scored on this trace; None where it can.

    `answered` is the verdict of `agent.metrics.answered.verdict`: 1, 0, or None where the answer
    was not captured.
    """
    if trace.status != "ok":
        return Gap(trace.status, applies=False)
    if answered is None:
        return Gap("no_text")
    if not answered:
        empty = trace.answer is None or not trace.answer.strip()
        return Gap("empty_answer" if empty else "no_answer", applies=False)
    return None


def standing(metric: str, trace: Trace, answered: float | None) -> Score | None:
    """`hindrance` as a built-in score."""
    gap = hindrance(trace, answered)
    return None if gap is None else result(metric, trace, gap, BUILTIN)
