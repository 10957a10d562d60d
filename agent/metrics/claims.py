"""What follows from the claims of an answer, once a judge has listed and judged them. Pure.

The quantities are those that RAGAS, DeepEval, RAG Guardian and many in-house suites know, under
their names: faithfulness and answer relevancy as shares of claims, groundedness as the share of
facts that were used, and two grades from 0 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.metrics.results import JUDGE, Gap
from agent.metrics.spec import MetricSpec

__all__ = [
    "CLAIMS",
    "FACTS",
    "HIGHEST",
    "SPECS",
    "Claim",
    "answer_relevancy",
    "faithfulness",
    "groundedness",
]

HIGHEST = 5  # of the two grades; in-house rubrics mostly go from 0 or 1 to 5


class Claim(NamedTuple):
    """One claim of an answer: whether the passages support it, and whether the query asks for
    it."""

    text: str
    supported: bool
    relevant: bool


def _spec(
    name: str, meaning: str, formula: str, needs: str, source: str, high: float = 1.0
) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind="mean",
        tier="judge",
        scorers=(JUDGE,),
        meaning=meaning,
        formula=formula,
        needs=needs,
        source=source,
        high=high,
    )


_OF_CLAIMS = "claims that an LLM judge finds in the answer"
_RUBRICS = "in-house rubrics of 0 to 5"

SPECS = (
    _spec(
        "faithfulness",
        "share of the answer's claims that the passages support",
        "supported claims / claims; not applicable without any",
        _OF_CLAIMS,
        "RAGAS, RAG Guardian",
    ),
    _spec(
        "answer_relevancy",
        "share of the answer's claims that help to answer the query",
        "relevant claims / claims; 0 without any, as a noncommittal answer",
        _OF_CLAIMS,
        "DeepEval; 0 as in RAGAS",
    ),
    _spec(
        "groundedness_grade",
        "how far the passages bear the answer out, as a grade",
        "grade 0 (nothing of it) to 5 (all of it), given after the claims",
        _OF_CLAIMS,
        _RUBRICS,
        HIGHEST,
    ),
    _spec(
        "correctness_grade",
        "how right and complete the answer is by its passages, as a grade",
        "grade 0 (wrong or none) to 5 (right and complete), given after the claims",
        _OF_CLAIMS,
        _RUBRICS,
        HIGHEST,
    ),
    _spec(
        "groundedness",
        "share of the facts retrieved for the query that the answer uses",
        "used facts / relevant facts of the passages; not applicable without any",
        "facts that an LLM judge finds in the passages",
        "RAG Guardian",
    ),
)

CLAIMS = tuple(spec.name for spec in SPECS[:4])
"""What the one call for claims gives."""

FACTS = ("groundedness",)
"""What the one call for facts gives."""


def faithfulness(claims: Sequence[Claim]) -> float | Gap:
    """Supported claims / claims: RAGAS and RAG Guardian."""
    if not claims:
        return Gap("no_claims", applies=False)
    return sum(claim.supported for claim in claims) / len(claims)


def answer_relevancy(claims: Sequence[Claim]) -> float:
    """Relevant claims / claims, as DeepEval has it; 0 for an answer that claims nothing, as RAGAS
    has it for one that does not commit itself."""
    if not claims:
        return 0.0
    return sum(claim.relevant for claim in claims) / len(claims)


def groundedness(used: Sequence[bool]) -> float | Gap:
    """Used facts / relevant facts, one entry for each relevant fact: RAG Guardian."""
    if not used:
        return Gap("nothing_relevant", applies=False)
    return sum(used) / len(used)
