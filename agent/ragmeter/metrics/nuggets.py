"""Formulas over the nuggets that a judge has listed and labelled.

A nugget is a vital or okay fact that an answer should hold; formulas are those of the TREC 2024 RAG
track (AutoNuggetizer, arXiv 2411.09607 and 2504.15068) and the weighted score of open-rag-eval,
without the floors of the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.reasons import Reason

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
