"""Grounding: how consistent an answer is with its passages, by a small fitted model of features.

The value is the model's probability that people would find nothing unsupported in the answer. It
ranks answers better than it calibrates them: see docs/agreement.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from agent.metrics.evidence import Claim, Pages, find_places, read_answer
from agent.metrics.grounding_features import FEATURES, Reading, read
from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from agent.metrics.words import clock_and_plain_numbers, content_stems, tokens
from agent.trace import Trace

__all__ = ["SPECS", "explain", "features", "probability"]

SPECS = (
    MetricSpec(
        name="grounding",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="consistency of the answer with its passages",
        formula="fitted probability that people find nothing unsupported, from lexical features",
        source="answer, passage and query texts",
    ),
)

MAX_QUERY = 4_000
MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries
MAX_DETAIL_ITEMS = 10
CLIP = 4.0  # as in fitting


@dataclass(frozen=True, slots=True)
class _Model:
    mean: list[float]
    scale: list[float]
    weights: list[float]
    trees: list[tuple[int, int, int, float, float, float, float, float, float, float]]
    slope: float
    intercept: float


@cache
def _model() -> _Model:
    raw = json.loads(resources.files(__package__).joinpath("grounding_model.json").read_text())
    if tuple(raw["features"]) != FEATURES:
        raise RuntimeError("grounding_model.json was fitted for other features: fit it again")
    return _Model(
        raw["mean"],
        raw["scale"],
        raw["weights"],
        [tuple(tree) for tree in raw["trees"]],
        raw["slope"],
        raw["intercept"],
    )


def probability(values: list[float]) -> float:
    """P(nothing unsupported) of a feature vector in the order of `FEATURES`, in (0, 1)."""
    model = _model()
    linear = 0.0
    for value, mean, scale, weight in zip(
        values, model.mean, model.scale, model.weights, strict=True
    ):
        z = (value - mean) / scale
        linear += weight * (CLIP if z > CLIP else -CLIP if z < -CLIP else z)
    grown = 0.0
    for f, lf, rf, c, lc, rc, a, b, d, e in model.trees:
        if values[f] <= c:
            grown += a if values[lf] <= lc else b
        else:
            grown += d if values[rf] <= rc else e
    odds = model.slope * (linear + grown) / 2 + model.intercept
    return 1 / (1 + math.exp(max(-40.0, min(40.0, odds))))


def asked(query: str | None) -> tuple[set[str], set[str]]:
    """Stems and canonical numbers of a query."""
    text = (query or "")[:MAX_QUERY]
    return set(content_stems(tokens(text))), {
        form for form, _ in clock_and_plain_numbers(text.lower())
    }


def features(trace: Trace) -> list[float]:
    """The features of a trace, for fitting."""
    pages = Pages.read([p.text or "" for p in trace.passages or ()])
    answer = read_answer(trace.answer or "")
    return read(pages, answer, find_places(pages, answer.claims), *asked(trace.query)).values


def explain(
    reading: Reading, pages: Pages, claims: list[Claim], passage_ids: list[str]
) -> dict[str, Any]:
    """The worst sentence with its support and nearest passage; numbers and names out of nowhere."""
    detail: dict[str, Any] = {}
    if claims:
        worst = min(range(len(claims)), key=reading.support.__getitem__)
        place = reading.places[worst]
        detail["worst_sentence"] = {
            "index": worst,
            "text": claims[worst].text[:MAX_DETAIL_TEXT],
            "support": round(reading.support[worst], 3),
            "passage_id": passage_ids[pages.owner[place]] if place >= 0 else None,
        }
    if reading.novel_numbers:
        detail["novel_numbers"] = reading.novel_numbers[:MAX_DETAIL_ITEMS]
    if reading.novel_names:
        detail["novel_names"] = reading.novel_names[:MAX_DETAIL_ITEMS]
    return detail
