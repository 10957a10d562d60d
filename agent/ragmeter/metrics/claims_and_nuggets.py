"""Formulas over the claims, facts and nuggets that a judge has listed and labelled.

Faithfulness, answer relevancy and groundedness are shares of claims and facts as RAGAS, DeepEval
and RAG Guardian define them; two grades go from 0 to 5, by the scales of helloworld-ai's EVAL.md.
A nugget is a vital or okay fact that an answer should hold; formulas are those of the TREC 2024 RAG
track (AutoNuggetizer, arXiv 2411.09607 and 2504.15068) and the weighted score of open-rag-eval,
without the floors of the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.reasons import Reason

HIGHEST_RUBRIC = 5
# The most that the scale of groundedness has for an answer that cites nothing, and for one with an
# unsupported claim: 4 means supported with citations but for minor details.
_UNCITED_RUBRIC, _UNSUPPORTED_RUBRIC = 3, 4


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


AUTONUGGETIZER = "autonuggetizer"
MAX_SCORED_NUGGETS = 20  # as in open-rag-eval and the track's own runs

NuggetImportance = Literal["vital", "okay"]
NuggetSupport = Literal["support", "partial_support", "not_support"]
NUGGET_IMPORTANCE: tuple[NuggetImportance, ...] = get_args(NuggetImportance)
NUGGET_SUPPORT: tuple[NuggetSupport, ...] = get_args(NuggetSupport)

NUGGET_VALUES: dict[NuggetSupport, float] = {
    "support": 1.0,
    "partial_support": 0.5,
    "not_support": 0.0,
}
_STRICT: dict[NuggetSupport, float] = {"support": 1.0, "partial_support": 0.0, "not_support": 0.0}
_OKAY_WEIGHT = 0.5  # of an okay nugget beside a vital one
NUGGET_METRICS = (
    "nugget_all",
    "nugget_vital",
    "nugget_weighted",
    "nugget_all_strict",
    "nugget_vital_strict",
    "nugget_weighted_strict",
    "nugget_count",
    "nugget_vital_count",
    "nugget_okay_count",
)


def select_nuggets(importance: Sequence[NuggetImportance]) -> list[int]:
    """Return the indices of the first 20 nuggets, vital ones before okay ones."""
    order = sorted(range(len(importance)), key=lambda i: importance[i] != "vital")
    return order[:MAX_SCORED_NUGGETS]


def _weighted(values: Sequence[float | NoScore], weights: Sequence[float]) -> float | NoScore:
    """Return the mean over positive weights, or the reason if one of their values is unknown."""
    pairs = [(value, w) for value, w in zip(values, weights, strict=True) if w > 0]
    gaps = [value for value, _ in pairs if isinstance(value, NoScore)]
    if gaps:
        return most_common_reason(gaps)
    total = sum(w for _, w in pairs)
    return sum(value * w for value, w in pairs if not isinstance(value, NoScore)) / total


def nugget_scores(
    supports: Sequence[NuggetSupport | NoScore], importance: Sequence[NuggetImportance] | NoScore
) -> dict[str, float | NoScore]:
    """Return every metric of `NUGGET_METRICS`.

    Args:
        supports: The label of each nugget, or the reason why there is none.
        importance: The class of each nugget, or the reason; `nugget_all` and `nugget_count` need
            no classes.
    """
    if not supports:
        return dict.fromkeys(NUGGET_METRICS, NoScore(Reason.NO_NUGGETS, applies=False))
    out: dict[str, float | NoScore] = {}
    for suffix, worth in (("", NUGGET_VALUES), ("_strict", _STRICT)):
        values = [s if isinstance(s, NoScore) else worth[s] for s in supports]
        out[f"nugget_all{suffix}"] = _weighted(values, [1.0] * len(values))
        vital: float | NoScore
        weighted: float | NoScore
        if isinstance(importance, NoScore):
            vital = weighted = importance
        else:
            vital = NoScore(Reason.NO_VITAL_NUGGETS, applies=False)
            if "vital" in importance:
                vital = _weighted(values, [float(kind == "vital") for kind in importance])
            weighted = _weighted(
                values, [1.0 if kind == "vital" else _OKAY_WEIGHT for kind in importance]
            )
        out[f"nugget_vital{suffix}"] = vital
        out[f"nugget_weighted{suffix}"] = weighted
    out["nugget_count"] = float(len(supports))
    for kind in NUGGET_IMPORTANCE:
        out[f"nugget_{kind}_count"] = (
            importance if isinstance(importance, NoScore) else float(importance.count(kind))
        )
    return out
