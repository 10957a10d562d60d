"""Grounding: how consistent an answer is with its passages, by a small fitted model of features.

The value is the model's probability that people would find nothing unsupported in the answer. It
ranks answers better than it calibrates them: see docs/agreement.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from operator import gt, mul
from typing import Any

from agent.metrics.coverage import best_place
from agent.metrics.evidence import Claim, Pages, Query, find_places, read_answer
from agent.metrics.grounding_features import FEATURES, Reading, read
from agent.metrics.grounding_sentences import FEATURES as SENTENCE_FEATURES
from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from agent.trace import Trace

__all__ = ["SPECS", "explain", "features", "probability", "together"]

SPECS = (
    MetricSpec(
        name="grounding",
        kind="mean",
        tier="cheap",
        scorers=("hhem", "hhem_fulltext", BUILTIN),
        meaning="consistency of the answer with its passages",
        formula="`hhem`: mean over sentences of the best window's P(consistent); `hhem_fulltext`:"
        " P(consistent) of the whole answer and the first 8192 characters of the passages;"
        " `builtin`: fitted probability that people find nothing unsupported, from lexical"
        " features",
        needs="answer, passage and query texts",
        source="`hhem`, `hhem_fulltext`: HHEM-2.1-Open of Vectara; `builtin`: ragmeter",
    ),
)

MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries
MAX_DETAIL_ITEMS = 10
CLIP = 4.0  # as in fitting


Stump = tuple[int, float, float, float]  # feature, cut, value up to the cut and above it


@dataclass(frozen=True, slots=True)
class _Line:
    """`base` and a line by feature, clipped where fitting clips."""

    lows: list[float]  # lowest and highest values that count
    highs: list[float]
    slopes: list[float]
    base: float
    clips_low: bool

    @classmethod
    def of(cls, raw: dict[str, list[float]], least: float = -math.inf) -> _Line:
        """`least`: no feature is ever below it."""
        fitted = list(zip(raw["mean"], raw["scale"], raw["weights"], strict=True))
        lows = [mean - CLIP * scale for mean, scale, _ in fitted]
        return cls(
            lows,
            [mean + CLIP * scale for mean, scale, _ in fitted],
            [w / scale for _, scale, w in fitted],
            -sum(w / scale * mean for mean, scale, w in fitted),
            max(lows) > least,
        )

    def at(self, values: Sequence[float]) -> float:
        if any(map(gt, values, self.highs)) or (self.clips_low and any(map(gt, self.lows, values))):
            values = [
                low if value < low else high if value > high else value
                for value, low, high in zip(values, self.lows, self.highs, strict=True)
            ]
        total: float = self.base + sum(map(mul, values, self.slopes))
        return total


@dataclass(frozen=True, slots=True)
class _Model:
    """The log odds are half the line, half the trees, and a share of the sentences' odds together.

    Trees by root feature and cut: the stumps below it and those above it, equal ones merged.
    """

    line: _Line
    sentence: _Line
    share: float
    roots: list[tuple[int, float, list[Stump], list[Stump]]]
    slope: float
    intercept: float


def _grow(trees: list[list[float]]) -> list[tuple[int, float, list[Stump], list[Stump]]]:
    """Trees of depth two as (root, left, right, cuts of each, four values), with one root each."""
    roots: dict[tuple[int, float], list[dict[tuple[int, float], tuple[float, float]]]] = {}
    for f, lf, rf, cut, lc, rc, a, b, d, e in trees:
        sides = roots.setdefault((int(f), cut), [{}, {}])
        for side, g, c, low, high in ((0, lf, lc, a, b), (1, rf, rc, d, e)):
            before = sides[side].get((int(g), c), (0.0, 0.0))
            sides[side][int(g), c] = (before[0] + low, before[1] + high)
    return [
        (f, cut, *[[(g, c, *ab) for (g, c), ab in side.items()] for side in sides])  # type: ignore[misc]
        for (f, cut), sides in roots.items()
    ]


@cache
def _model() -> _Model:
    raw = json.loads(resources.files(__package__).joinpath("grounding_model.json").read_text())
    of_sentences = raw["sentences"]
    if tuple(raw["features"]) != FEATURES or tuple(of_sentences["features"]) != SENTENCE_FEATURES:
        raise RuntimeError("grounding_model.json was fitted for other features: fit it again")
    return _Model(
        _Line.of(raw),
        _Line.of(of_sentences, least=0.0),  # counts and shares
        of_sentences["share"],
        _grow(raw["trees"]),
        raw["slope"],
        raw["intercept"],
    )


def together(odds: Sequence[float]) -> float:
    """Log odds of an answer from those of its sentences: a mean that leans towards the worst.

    Half the log of the mean of exp(2 x); 0 without sentences. Between the mean, which forgives one
    bad sentence in a long answer, and the maximum, which goes by chance alone.
    """
    if not odds:
        return 0.0
    if min(odds) < -20 or max(odds) > 20:  # neither overflows nor vanishes
        odds = [max(-20.0, min(20.0, x)) for x in odds]
    return math.log(sum(map(math.exp, [2 * x for x in odds])) / len(odds)) / 2


def probability(values: Sequence[float], sentences: Sequence[Sequence[float]]) -> float:
    """P(nothing unsupported), in (0, 1), of a `Reading`'s feature vector and its sentences'."""
    model = _model()
    linear = model.line.at(values)
    worst = together([model.sentence.at(row) for row in sentences])
    grown = 0.0
    for f, cut, below, above in model.roots:
        for g, c, a, b in below if values[f] <= cut else above:
            grown += a if values[g] <= c else b
    odds = model.slope * ((linear + grown) / 2 + model.share * worst) + model.intercept
    return 1 / (1 + math.exp(max(-40.0, min(40.0, odds))))


def features(trace: Trace) -> tuple[Reading, list[Claim]]:
    """The features of a trace and the sentences of its answer, for fitting."""
    pages = Pages.read([p.text or "" for p in trace.passages or ()])
    answer = read_answer(trace.answer or "")
    query = Query.read(trace.query)
    places = find_places(pages, answer.claims, query.stems)
    return read(pages, answer, places, query), answer.claims


def explain(
    reading: Reading,
    pages: Pages,
    claims: list[Claim],
    places: Mapping[str, list[int]],
    passage_ids: list[str],
) -> dict[str, Any]:
    """The worst sentence with its support and nearest passage; numbers and names out of nowhere."""
    detail: dict[str, Any] = {}
    found = reading.coverage
    if claims:
        claim = claims[found.worst]
        place = best_place(found.worst_masses, claim, places)
        detail["worst_sentence"] = {
            "index": found.worst,
            "text": claim.text[:MAX_DETAIL_TEXT],
            "support": round(found.support[found.worst], 3),
            "passage_id": passage_ids[pages.owner[place]] if place >= 0 else None,
        }
    if reading.novel_numbers:
        detail["novel_numbers"] = reading.novel_numbers[:MAX_DETAIL_ITEMS]
    if reading.novel_names:
        detail["novel_names"] = reading.novel_names[:MAX_DETAIL_ITEMS]
    return detail
