"""Sums of what was drawn from a sampling stratum, with the cheap score of the same trace beside it.

What a stratum holds in all (N, SF) is counted when its traces arrive and weighted by the upstream
probability; what was found in it (n and the other sums) when a judge answers, weighted by the
whole inclusion probability. So results that come late, or never, bend no stratum's share.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.trace import Score, State
from agent.windows.exact import MAX_VALUE, VALUE_ONE, weight
from agent.windows.sums import (
    NO_VALUE,
    NOT_APPLICABLE,
    WITHOUT_CHEAP,
    StrataSums,
    add_scored,
    empty_sums,
)

__all__ = ["add_result", "add_traces", "stratum_of"]


def stratum_of(stratum: str, cheap: float | None) -> str:
    """The name that the sums of a stratum go by: those without a cheap score apart."""
    if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
        return stratum + WITHOUT_CHEAP
    return stratum


def add_traces(
    strata: StrataSums, stratum: str, probability: float, cheaps: Sequence[float | None]
) -> None:
    """Count traces of one stratum and one upstream `probability`, with their cheap scores."""
    w = weight(probability)
    sums = strata.get(stratum)
    if sums is None:
        sums = strata[stratum] = empty_sums()
    sums[0] += w * len(cheaps)
    if not stratum.endswith(WITHOUT_CHEAP):
        sums[1] += w * sum([round(cheap * VALUE_ONE) for cheap in cheaps if cheap is not None])


def add_result(sums: list[int], score: Score, state: State) -> None:
    """Add what was found of a trace that was drawn."""
    probability = score.probability
    # a broken scorer's probability must not stop the sums; it counts as if everything was drawn
    w = weight(probability if 0 < probability <= 1 else 1.0)
    if state is State.SCORED and score.value is not None:
        y = round(score.value * VALUE_ONE)
        cheap = score.cheap
        if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
            add_scored(sums, w, y, y * y)
        else:
            f = round(cheap * VALUE_ONE)
            add_scored(sums, w, y, y * y, f=f, ff=f * f, yf=y * f)
    elif state is State.NOT_APPLICABLE:
        sums[NOT_APPLICABLE] += w
    else:
        sums[NO_VALUE] += w
