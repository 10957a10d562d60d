"""Formulas over the claims and facts that a judge has listed and labelled.

Faithfulness, answer relevancy and groundedness are shares of claims and facts as RAGAS, DeepEval
and RAG Guardian define them; two grades go from 0 to 5, by the scales of helloworld-ai's EVAL.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.reasons import Reason

HIGHEST_RUBRIC = 5
# The most that the scale of groundedness has for an answer that cites nothing, and for one with an
# unsupported claim: 4 means supported with citations but for minor details.
_UNCITED_RUBRIC = 3
_UNSUPPORTED_RUBRIC = 4


class JudgedClaim(NamedTuple):
    """A claim of an answer: whether the passages support it, and whether the query asks for it."""

    text: str
    supported: bool
    relevant: bool


# Of one request to the judge; the facts are another one.
CLAIM_METRICS = ("faithfulness", "answer_relevancy", "groundedness_grade", "correctness_grade")
FACT_METRICS = ("groundedness",)


def faithfulness(claims: Sequence[JudgedClaim]) -> float | NoScore:
    """Compute supported claims / claims (RAGAS, RAG Guardian)."""
    if not claims:
        return NoScore(Reason.NO_CLAIMS, applies=False)
    return sum(claim.supported for claim in claims) / len(claims)


def answer_relevancy(claims: Sequence[JudgedClaim]) -> float:
    """Compute relevant claims / claims (DeepEval); 0 without claims, as in RAGAS."""
    return sum(claim.relevant for claim in claims) / len(claims) if claims else 0.0


def groundedness_grade(grade: int, claims: Sequence[JudgedClaim], cites: bool) -> float | NoScore:
    """Return a judge's grade of groundedness, at most what its scale allows for the answer.

    Whether the answer cites a passage is known, and labels of claims are harder to talk a judge
    into than a grade. An answer without claims has nothing to be grounded.
    """
    if not claims:
        return NoScore(Reason.NO_CLAIMS, applies=False)
    most = HIGHEST_RUBRIC if cites else _UNCITED_RUBRIC
    if not all(claim.supported for claim in claims):
        most = min(most, _UNSUPPORTED_RUBRIC)
    return float(min(grade, most))


def groundedness(used: Sequence[bool]) -> float | NoScore:
    """Compute used facts / relevant facts (RAG Guardian), from one entry a relevant fact."""
    if not used:
        return NoScore(Reason.NOTHING_RELEVANT, applies=False)
    return sum(used) / len(used)
