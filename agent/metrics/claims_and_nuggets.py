"""Formulas over the claims, facts and nuggets that a judge has listed and labelled.

Faithfulness, answer relevancy and groundedness are shares of claims and facts as RAGAS, DeepEval
and RAG Guardian define them; two grades go from 0 to 5. A nugget is a vital or okay fact that an
answer should hold; formulas are those of the TREC 2024 RAG track (AutoNuggetizer, arXiv 2411.09607
and 2504.15068) and the weighted score of open-rag-eval, without the floors of the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import JUDGE_SCORER, NoScore, most_common_reason

HIGHEST_RUBRIC = 5  # of the two grades; in-house rubrics mostly go from 0 or 1 to 5


class JudgedClaim(NamedTuple):
    """A claim of an answer: whether the passages support it, and whether the query asks for it."""

    text: str
    supported: bool
    relevant: bool


def _claim_spec(
    name: str,
    meaning: str,
    formula: str,
    needs: str,
    source: str,
    high: float = 1.0,
    helped_by: str = "",
) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind="mean",
        tier="judge",
        scorers=(JUDGE_SCORER,),
        meaning=meaning,
        formula=formula,
        needs=needs,
        source=source,
        high=high,
        helped_by=helped_by,
    )


_OF_CLAIMS = "claims that an LLM judge finds in the answer"
_RUBRICS = "in-house rubrics of 0 to 5"

CLAIM_SPECS = (
    _claim_spec(
        "faithfulness",
        "share of the answer's claims that the passages support",
        "supported claims / claims; not applicable without a claim",
        _OF_CLAIMS,
        "RAGAS, RAG Guardian",
        helped_by="grounding",
    ),
    _claim_spec(
        "answer_relevancy",
        "share of the answer's claims that help to answer the query",
        "relevant claims / claims; 0 without any, as a noncommittal answer",
        _OF_CLAIMS,
        "DeepEval; 0 as in RAGAS",
    ),
    _claim_spec(
        "groundedness_grade",
        "how far the passages bear the answer out, as a grade",
        "grade 0 (nothing of it) to 5 (all of it), given after the claims",
        _OF_CLAIMS,
        _RUBRICS,
        HIGHEST_RUBRIC,
        helped_by="grounding",
    ),
    _claim_spec(
        "correctness_grade",
        "how right and complete the answer is by its passages, as a grade",
        "grade 0 (wrong or none) to 5 (right and complete), given after the claims",
        _OF_CLAIMS,
        _RUBRICS,
        HIGHEST_RUBRIC,
    ),
    _claim_spec(
        "groundedness",
        "share of the facts retrieved for the query that the answer uses",
        "used facts / relevant facts of the passages; not applicable without a relevant fact",
        "facts that an LLM judge finds in the passages",
        "RAG Guardian",
        helped_by="grounding",
    ),
)

CLAIM_METRICS = tuple(spec.name for spec in CLAIM_SPECS[:4])  # of one request to the judge
FACT_METRICS = ("groundedness",)  # of another one


def faithfulness(claims: Sequence[JudgedClaim]) -> float | NoScore:
    """Compute supported claims / claims (RAGAS, RAG Guardian)."""
    if not claims:
        return NoScore("no_claims", applies=False)
    return sum(claim.supported for claim in claims) / len(claims)


def answer_relevancy(claims: Sequence[JudgedClaim]) -> float:
    """Compute relevant claims / claims (DeepEval); 0 without claims, as in RAGAS."""
    return sum(claim.relevant for claim in claims) / len(claims) if claims else 0.0


def groundedness(used: Sequence[bool]) -> float | NoScore:
    """Compute used facts / relevant facts (RAG Guardian), from one entry a relevant fact."""
    if not used:
        return NoScore("nothing_relevant", applies=False)
    return sum(used) / len(used)


AUTONUGGETIZER = "autonuggetizer"
MAX_SCORED_NUGGETS = 20  # as in open-rag-eval and the track's own runs

NuggetImportance = Literal["vital", "okay"]
NuggetSupport = Literal["support", "partial_support", "not_support"]
NUGGET_IMPORTANCE: tuple[NuggetImportance, ...] = get_args(NuggetImportance)
NUGGET_SUPPORT: tuple[NuggetSupport, ...] = get_args(NuggetSupport)

_LENIENT: dict[NuggetSupport, float] = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_STRICT: dict[NuggetSupport, float] = {"support": 1.0, "partial_support": 0.0, "not_support": 0.0}
_OKAY_WEIGHT = 0.5  # of an okay nugget beside a vital one
_TREC = "TREC 2024 RAG track, AutoNuggetizer (arXiv 2411.09607, 2504.15068)"
_SOURCES = {"all": _TREC, "vital": _TREC, "weighted": "open-rag-eval, without its floors"}

NUGGET_SPECS = tuple(
    MetricSpec(
        name=f"nugget_{name}{suffix}",
        kind="mean",
        tier="judge",
        scorers=(AUTONUGGETIZER,),
        meaning=f"{meaning}{also}",
        formula=f"{formula}; {values}",
        needs="nuggets that an LLM judge finds in the passages of grade >= 1",
        source=_SOURCES[name],
    )
    for suffix, also, values in (
        ("", "", "s = 1 supported, 0.5 partly, 0 not"),
        ("_strict", ", in full", "s = 1 supported, 0 partly or not"),
    )
    for name, meaning, formula in (
        (
            "all",
            "share of the nuggets that the answer holds",
            "mean of s over all nuggets; not applicable without a nugget",
        ),
        (
            "vital",
            "share of the vital nuggets that the answer holds",
            "mean of s over vital nuggets; not applicable without a vital nugget",
        ),
        (
            "weighted",
            "share of the nuggets that the answer holds, vital ones counted twice",
            "(sum of s over vital + 0.5 sum of s over okay) / (vital + 0.5 okay); not applicable"
            " without a nugget",
        ),
    )
)
NUGGET_METRICS = tuple(spec.name for spec in NUGGET_SPECS)


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
        importance: The class of each nugget, or the reason; `nugget_all` needs no classes.
    """
    if not supports:
        return dict.fromkeys(NUGGET_METRICS, NoScore("no_nuggets", applies=False))
    out: dict[str, float | NoScore] = {}
    for suffix, worth in (("", _LENIENT), ("_strict", _STRICT)):
        values = [s if isinstance(s, NoScore) else worth[s] for s in supports]
        out[f"nugget_all{suffix}"] = _weighted(values, [1.0] * len(values))
        vital: float | NoScore
        weighted: float | NoScore
        if isinstance(importance, NoScore):
            vital = weighted = importance
        else:
            vital = NoScore("no_vital_nuggets", applies=False)
            if "vital" in importance:
                vital = _weighted(values, [float(kind == "vital") for kind in importance])
            weighted = _weighted(
                values, [1.0 if kind == "vital" else _OKAY_WEIGHT for kind in importance]
            )
        out[f"nugget_vital{suffix}"] = vital
        out[f"nugget_weighted{suffix}"] = weighted
    return out
