"""Grounding: the probability that the passages support an answer, from a small fitted model.

The value is the model's probability that people would find nothing unsupported in the answer. It
ranks answers better than it calibrates them: see docs/agreement.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from operator import mul
from typing import Any

from ragmeter.metrics import kernel
from ragmeter.metrics.answer_text import AnswerSentence, parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.grounding_features import (
    ANSWER_FEATURES,
    SENTENCE_FEATURES,
    AnswerFeatures,
)
from ragmeter.metrics.text_index import PassageIndex, PassageText, QueryText
from ragmeter.trace import Trace

_MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries
_MAX_DETAIL_ITEMS = 10
# By the contradictions of an answer, in log odds. They are set and not fitted: in the labelled
# sets such errors are rare, and yet an answer must lose by a false "not" or a wrong number. More
# costs the agreement with people more than 0.005 (`python -m training.fit_grounding`).
CONTRADICTION_WEIGHTS = (0.45, 0.2, 0.35, 0.7, 0.7)
# The same by the values that stand in place of another one of the passages: a wrong number or date
# among right ones takes the value down by .3, and on no labelled set the order is the worse for it.
REPLACED_WEIGHT = 2.6
# The same once more, divided by the sentences: in a short answer a wrong value is most of what is
# said.
REPLACED_WEIGHT_SHORT = 0.5
_CLIP = 4.0  # standard deviations, as in fitting
_Stump = tuple[int, float, float, float]  # feature, cut, value up to the cut and above it


def _read_line(raw: dict[str, list[float]]) -> kernel.PiecewiseLine:
    """Read a linear function of features that are clipped as in fitting."""
    fitted = list(zip(raw["mean"], raw["scale"], raw["weights"], strict=True))
    return kernel.PiecewiseLine(
        [mean - _CLIP * scale for mean, scale, _ in fitted],
        [mean + _CLIP * scale for mean, scale, _ in fitted],
        [weight / scale for _, scale, weight in fitted],
        -sum(weight / scale * mean for mean, scale, weight in fitted),
    )


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
def _load_model() -> tuple[kernel.GroundingModel, float, float]:
    """Load the fitted model, and the slope and intercept that calibrate its log odds."""
    raw = json.loads(resources.files(__package__).joinpath("grounding_model.json").read_text())
    of_sentences = raw["sentences"]
    if (
        tuple(raw["features"]) != ANSWER_FEATURES
        or tuple(of_sentences["features"]) != SENTENCE_FEATURES
    ):
        raise RuntimeError("grounding_model.json was fitted for other features: fit it again")
    model = kernel.GroundingModel(
        _read_line(raw), _read_line(of_sentences), of_sentences["share"], _build_trees(raw["trees"])
    )
    return model, raw["slope"], raw["intercept"]


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
    model, slope, intercept = _load_model()
    raw = model.raw(features.values, features.sentences)
    contradicted = weigh_contradictions(features.contradictions)
    weight = REPLACED_WEIGHT + REPLACED_WEIGHT_SHORT / max(1, len(features.sentences))
    contradicted += weight * math.log1p(features.replaced)
    odds = slope * (raw + contradicted) + intercept
    return 1 / (1 + math.exp(max(-40.0, min(40.0, odds))))


def grounding_features(trace: Trace) -> tuple[AnswerFeatures, list[AnswerSentence]]:
    """Return the features of a trace and the sentences of its answer; any thread may call it."""
    texts = [p.text or "" for p in trace.passages or ()]
    pages = PassageIndex.read(texts, PassageText)
    query = QueryText.read(trace.query, pages.texts)
    answer = parse_answer(trace.answer or "", pages.texts, query.text)
    return compare_texts(pages, answer, query).extract_features(), answer.claims


def explain_grounding(
    features: AnswerFeatures, worst_text: str, passage_ids: list[str]
) -> dict[str, Any]:
    """Return the worst sentence with its nearest passage, and novel numbers and names."""
    detail: dict[str, Any] = {}
    worst = features.worst
    if worst is not None:
        detail["worst_sentence"] = {
            "index": worst.index,
            "text": worst_text[:_MAX_DETAIL_TEXT],
            "support": round(worst.support, 3),
            "passage_id": None if worst.passage is None else passage_ids[worst.passage],
        }
    if features.novel_numbers:
        detail["novel_numbers"] = features.novel_numbers[:_MAX_DETAIL_ITEMS]
    if features.novel_names:
        detail["novel_names"] = features.novel_names[:_MAX_DETAIL_ITEMS]
    return detail
