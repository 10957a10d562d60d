"""Nugget scores of an answer: pure formulas.

A nugget is a fact that an answer should hold, vital or okay; the answer supports it, partly
supports it, or does not. Formulas of the TREC 2024 RAG track (AutoNuggetizer, arXiv 2411.09607
and 2504.15068) and the weighted score of open-rag-eval, without the floors of the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from agent.metrics.results import Gap, prevailing
from agent.metrics.spec import MetricSpec

__all__ = [
    "AUTONUGGETIZER",
    "IMPORTANCE",
    "KEPT",
    "NAMES",
    "SPECS",
    "SUPPORT",
    "Importance",
    "Support",
    "keep",
    "nugget_scores",
]

AUTONUGGETIZER = "autonuggetizer"
KEPT = 20  # nuggets an answer is held against; open-rag-eval and the track's own runs keep 20

Importance = Literal["vital", "okay"]
Support = Literal["support", "partial_support", "not_support"]
IMPORTANCE: tuple[Importance, ...] = get_args(Importance)
SUPPORT: tuple[Support, ...] = get_args(Support)

_LENIENT: dict[Support, float] = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_STRICT: dict[Support, float] = {"support": 1.0, "partial_support": 0.0, "not_support": 0.0}
OKAY_WEIGHT = 0.5  # of an okay nugget beside a vital one
_TREC = "TREC 2024 RAG track, AutoNuggetizer (arXiv 2411.09607, 2504.15068)"
_SOURCES = {"all": _TREC, "vital": _TREC, "weighted": "open-rag-eval, without its floors"}

SPECS = tuple(
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
        ("all", "share of the nuggets that the answer holds", "mean of s over all nuggets"),
        (
            "vital",
            "share of the vital nuggets that the answer holds",
            "mean of s over vital nuggets; not applicable without any",
        ),
        (
            "weighted",
            "share of the nuggets that the answer holds, vital ones counted twice",
            "(sum of s over vital + 0.5 sum of s over okay) / (vital + 0.5 okay)",
        ),
    )
)
NAMES = tuple(spec.name for spec in SPECS)


def keep(importance: Sequence[Importance]) -> list[int]:
    """Indices of the nuggets that count: vital ones first, each class in its order, `KEPT`."""
    order = sorted(range(len(importance)), key=lambda i: importance[i] != "vital")
    return order[:KEPT]


def _weighted(values: Sequence[float | Gap], weights: Sequence[float]) -> float | Gap:
    """Weighted mean over those of positive weight, of which every value must be known."""
    pairs = [(value, w) for value, w in zip(values, weights, strict=True) if w > 0]
    gaps = [value for value, _ in pairs if isinstance(value, Gap)]
    if gaps:
        return prevailing(gaps)
    total = sum(w for _, w in pairs)
    return sum(value * w for value, w in pairs if not isinstance(value, Gap)) / total


def nugget_scores(
    supports: Sequence[Support | Gap], importance: Sequence[Importance] | Gap
) -> dict[str, float | Gap]:
    """Every metric of `NAMES` from one support (or the gap in its place) for each nugget.

    `importance` is a `Gap` where the classes are not known: `nugget_all` needs none.
    """
    if not supports:
        return dict.fromkeys(NAMES, Gap("no_nuggets", applies=False))
    out: dict[str, float | Gap] = {}
    for suffix, worth in (("", _LENIENT), ("_strict", _STRICT)):
        values = [s if isinstance(s, Gap) else worth[s] for s in supports]
        out[f"nugget_all{suffix}"] = _weighted(values, [1.0] * len(values))
        vital: float | Gap
        weighted: float | Gap
        if isinstance(importance, Gap):
            vital = weighted = importance
        else:
            vital = Gap("no_vital_nuggets", applies=False)
            if "vital" in importance:
                vital = _weighted(values, [float(kind == "vital") for kind in importance])
            weighted = _weighted(
                values, [1.0 if kind == "vital" else OKAY_WEIGHT for kind in importance]
            )
        out[f"nugget_vital{suffix}"] = vital
        out[f"nugget_weighted{suffix}"] = weighted
    return out
