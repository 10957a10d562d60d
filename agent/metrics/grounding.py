"""Grounding: the probability that the passages support an answer, from a small fitted model.

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

from ragmeter.metrics import text_index
from ragmeter.metrics.coverage import find_best_position
from ragmeter.metrics.grounding_features import (
    ANSWER_FEATURES,
    SENTENCE_FEATURES,
    AnswerFeatures,
    extract_features,
)
from ragmeter.trace import Trace

MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries
_MAX_DETAIL_ITEMS = 10
# By the contradictions of an answer, in log odds. They are set and not fitted: in the labelled
# sets such errors are rare, and yet an answer must lose by a false "not" or a wrong number. More
# costs the agreement with people more than 0.005 (`python -m benchmarks.fit_grounding`).
CONTRADICTION_WEIGHTS = (0.45, 0.2, 0.35, 0.7, 0.7)
_CLIP = 4.0  # standard deviations, as in fitting
_Stump = tuple[int, float, float, float]  # feature, cut, value up to the cut and above it


@dataclass(frozen=True, slots=True)
class _PiecewiseLine:
    """A linear function of features that are clipped as in fitting."""

    lows: list[float]  # lowest and highest values that count
    highs: list[float]
    slopes: list[float]
    base: float
    clips_low: bool

    @classmethod
    def of(cls, raw: dict[str, list[float]], least_value: float = -math.inf) -> _PiecewiseLine:
        fitted = list(zip(raw["mean"], raw["scale"], raw["weights"], strict=True))
        lows = [mean - _CLIP * scale for mean, scale, _ in fitted]
        return cls(
            lows,
            [mean + _CLIP * scale for mean, scale, _ in fitted],
            [w / scale for _, scale, w in fitted],
            -sum(w / scale * mean for mean, scale, w in fitted),
            max(lows) > least_value,
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
    """The fitted parameters.

    The log odds are half the line and half the trees, plus a share of the sentences' combined odds
    and those of contradictions.
    `roots` are trees by root feature and cut: the stumps below and above it, equal ones merged.
    """

    line: _PiecewiseLine
    sentence: _PiecewiseLine
    share: float
    roots: list[tuple[int, float, list[_Stump], list[_Stump]]]
    slope: float
    intercept: float


def _build_trees(trees: list[list[float]]) -> list[tuple[int, float, list[_Stump], list[_Stump]]]:
    """Merge trees of depth two (root, left, right, cuts of each, four values) by root."""
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
        _PiecewiseLine.of(of_sentences, least_value=0.0),  # counts and shares
        of_sentences["share"],
        _build_trees(raw["trees"]),
        raw["slope"],
        raw["intercept"],
    )


def combine_log_odds(odds: Sequence[float]) -> float:
    """Combine the log odds x of sentences into log(mean(exp(2 x))) / 2; 0 without sentences.

    This lies between the mean, which forgives one bad sentence in a long answer, and the maximum,
    which is mostly noise.
    """
    if not odds:
        return 0.0
    if min(odds) < -20 or max(odds) > 20:  # neither overflows nor vanishes
        odds = [max(-20.0, min(20.0, x)) for x in odds]
    return math.log(sum(map(math.exp, [2 * x for x in odds])) / len(odds)) / 2


def weigh_contradictions(contradictions: Sequence[float]) -> float:
    """Return the log odds by the contradictions of an answer, in the order of `CONTRADICTIONS`."""
    total: float = sum(map(mul, CONTRADICTION_WEIGHTS, contradictions))
    return total


def grounding_probability(features: AnswerFeatures) -> float:
    """Compute the probability, in (0, 1), that people find nothing unsupported in an answer."""
    model, values, sentences = _load_model(), features.values, features.sentences
    linear = model.line.at(values)
    worst = combine_log_odds([model.sentence.at(row) for row in sentences])
    grown = 0.0
    for f, cut, below, above in model.roots:
        for g, c, a, b in below if values[f] <= cut else above:
            grown += a if values[g] <= c else b
    raw = (linear + grown) / 2 + model.share * worst + weigh_contradictions(features.contradictions)
    odds = model.slope * raw + model.intercept
    return 1 / (1 + math.exp(max(-40.0, min(40.0, odds))))


def grounding_features(trace: Trace) -> tuple[AnswerFeatures, list[text_index.AnswerSentence]]:
    """Return the features of a trace and the sentences of its answer; any thread may call it."""
    texts = [p.text or "" for p in trace.passages or ()]
    pages = text_index.PassageIndex.read(texts, text_index.PassageText)
    answer = text_index.parse_answer(trace.answer or "")
    query = text_index.QueryText.read(trace.query)
    positions = text_index.find_positions(pages, answer.claims, query.stems)
    return extract_features(pages, answer, positions, query), answer.claims


def explain_grounding(
    features: AnswerFeatures,
    pages: text_index.PassageIndex,
    claims: list[text_index.AnswerSentence],
    positions: Mapping[str, list[int]],
    passage_ids: list[str],
) -> dict[str, Any]:
    """Return the worst sentence with its nearest passage, and novel numbers and names."""
    detail: dict[str, Any] = {}
    coverage = features.coverage
    if claims:
        claim = claims[coverage.worst]
        position = find_best_position(coverage.worst_masses, claim, positions)
        detail["worst_sentence"] = {
            "index": coverage.worst,
            "text": claim.text[:MAX_DETAIL_TEXT],
            "support": round(coverage.support[coverage.worst], 3),
            "passage_id": passage_ids[pages.owner[position]] if position >= 0 else None,
        }
    if features.novel_numbers:
        detail["novel_numbers"] = features.novel_numbers[:_MAX_DETAIL_ITEMS]
    if features.novel_names:
        detail["novel_names"] = features.novel_names[:_MAX_DETAIL_ITEMS]
    return detail
