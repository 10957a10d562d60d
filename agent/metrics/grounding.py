"""Grounding: the probability that an answer is supported by its passages, from a small fitted model.

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

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import BUILTIN_SCORER
from ragmeter.metrics.coverage import find_best_position
from ragmeter.metrics.grounding_features import (
    ANSWER_FEATURES,
    SENTENCE_FEATURES,
    AnswerFeatures,
    extract_features,
)
from ragmeter.metrics.text_index import (
    AnswerSentence,
    PassageIndex,
    QueryText,
    find_positions,
    parse_answer,
)
from ragmeter.trace import Trace

SPECS = (
    MetricSpec(
        name="grounding",
        kind="mean",
        tier="cheap",
        scorers=("hhem", "hhem_fulltext", BUILTIN_SCORER),
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
_MAX_DETAIL_ITEMS = 10
_CLIP = 4.0  # as in fitting


_Stump = tuple[int, float, float, float]  # feature, cut, value up to the cut and above it


@dataclass(frozen=True, slots=True)
class _PiecewiseLine:
    """`base` and a line by feature, clipped where fitting clips."""

    lows: list[float]  # lowest and highest values that count
    highs: list[float]
    slopes: list[float]
    base: float
    clips_low: bool

    @classmethod
    def of(cls, raw: dict[str, list[float]], least: float = -math.inf) -> _PiecewiseLine:
        """`least`: no feature is ever below it."""
        fitted = list(zip(raw["mean"], raw["scale"], raw["weights"], strict=True))
        lows = [mean - _CLIP * scale for mean, scale, _ in fitted]
        return cls(
            lows,
            [mean + _CLIP * scale for mean, scale, _ in fitted],
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
class _GroundingModel:
    """The log odds are half the line, half the trees, and a share of the sentences' odds together.

    Trees by root feature and cut: the stumps below it and those above it, equal ones merged.
    """

    line: _PiecewiseLine
    sentence: _PiecewiseLine
    share: float
    roots: list[tuple[int, float, list[_Stump], list[_Stump]]]
    slope: float
    intercept: float


def _build_trees(trees: list[list[float]]) -> list[tuple[int, float, list[_Stump], list[_Stump]]]:
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
def _load_model() -> _GroundingModel:
    raw = json.loads(resources.files(__package__).joinpath("grounding_model.json").read_text())
    of_sentences = raw["sentences"]
    if (
        tuple(raw["features"]) != ANSWER_FEATURES
        or tuple(of_sentences["features"]) != SENTENCE_FEATURES
    ):
        raise RuntimeError("grounding_model.json was fitted for other features: fit it again")
    return _GroundingModel(
        _PiecewiseLine.of(raw),
        _PiecewiseLine.of(of_sentences, least=0.0),  # counts and shares
        of_sentences["share"],
        _build_trees(raw["trees"]),
        raw["slope"],
        raw["intercept"],
    )


def combine_log_odds(odds: Sequence[float]) -> float:
    """Log odds of an answer from those of its sentences: a mean that leans towards the worst.

    Half the log of the mean of exp(2 x); 0 without sentences. Between the mean, which forgives one
    bad sentence in a long answer, and the maximum, which goes by chance alone.
    """
    if not odds:
        return 0.0
    if min(odds) < -20 or max(odds) > 20:  # neither overflows nor vanishes
        odds = [max(-20.0, min(20.0, x)) for x in odds]
    return math.log(sum(map(math.exp, [2 * x for x in odds])) / len(odds)) / 2


def grounding_probability(values: Sequence[float], sentences: Sequence[Sequence[float]]) -> float:
    """P(nothing unsupported), in (0, 1), of a `Reading`'s feature vector and its sentences'."""
    model = _load_model()
    linear = model.line.at(values)
    worst = combine_log_odds([model.sentence.at(row) for row in sentences])
    grown = 0.0
    for f, cut, below, above in model.roots:
        for g, c, a, b in below if values[f] <= cut else above:
            grown += a if values[g] <= c else b
    odds = model.slope * ((linear + grown) / 2 + model.share * worst) + model.intercept
    return 1 / (1 + math.exp(max(-40.0, min(40.0, odds))))


def grounding_features(trace: Trace) -> tuple[AnswerFeatures, list[AnswerSentence]]:
    """The features of a trace and the sentences of its answer, for fitting."""
    pages = PassageIndex.read([p.text or "" for p in trace.passages or ()])
    answer = parse_answer(trace.answer or "")
    query = QueryText.read(trace.query)
    places = find_positions(pages, answer.claims, query.stems)
    return extract_features(pages, answer, places, query), answer.claims


def explain_grounding(
    reading: AnswerFeatures,
    pages: PassageIndex,
    claims: list[AnswerSentence],
    places: Mapping[str, list[int]],
    passage_ids: list[str],
) -> dict[str, Any]:
    """The worst sentence with its support and nearest passage; numbers and names out of nowhere."""
    detail: dict[str, Any] = {}
    found = reading.coverage
    if claims:
        claim = claims[found.worst]
        place = find_best_position(found.worst_masses, claim, places)
        detail["worst_sentence"] = {
            "index": found.worst,
            "text": claim.text[:MAX_DETAIL_TEXT],
            "support": round(found.support[found.worst], 3),
            "passage_id": passage_ids[pages.owner[place]] if place >= 0 else None,
        }
    if reading.novel_numbers:
        detail["novel_numbers"] = reading.novel_numbers[:_MAX_DETAIL_ITEMS]
    if reading.novel_names:
        detail["novel_names"] = reading.novel_names[:_MAX_DETAIL_ITEMS]
    return detail
