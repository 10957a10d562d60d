"""The eight questions of a service, and which scores answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal, NamedTuple

from ragmeter.core.feedback import PEOPLE
from ragmeter.core.score import BUILTIN_SCORER, ESTIMATE_SCORER
from ragmeter.parts.views import Source

Unit = Literal["share", "seconds", "usd"]

TRUST: tuple[Source, ...] = ("labels", "judge", "model", "builtin")
"""The sources of a question that is estimated, the most trusted first."""


class QuestionSpec(NamedTuple):
    """A question that people ask of a service.

    Args:
        name: Its name, as in `rag_grounded_ratio`.
        meaning: What its number counts.
        unit: The unit of the number.
        better: Which direction is better.
        sources: What its level may rest on. A source that is missing here may help with the
            movement and with the width of the interval, and never gives a level: a cheap score of
            grounding is no share of grounded answers.
        least: The least change that matters, in points (hundredths) of a share, else as a share of
            the usual.
    """

    name: str
    meaning: str
    unit: Unit
    better: Literal["higher", "lower"]
    sources: tuple[Source, ...]
    least: float


QUESTIONS: tuple[QuestionSpec, ...] = (
    QuestionSpec(
        name="works",
        meaning="requests answered without error, timeout or empty answer",
        unit="share",
        better="higher",
        sources=("requests",),
        least=1.0,
    ),
    QuestionSpec(
        name="fast",
        meaning="p95 of the total time",
        unit="seconds",
        better="lower",
        sources=("requests",),
        least=0.25,
    ),
    QuestionSpec(
        name="answered",
        meaning="questions not refused",
        unit="share",
        better="higher",
        # the phrase rules agree with people on .93 to .99 of the answers of five labelled sets
        sources=("labels", "judge", "builtin"),
        least=3.0,
    ),
    QuestionSpec(
        name="grounded",
        meaning="answers that their passages support",
        unit="share",
        better="higher",
        sources=("labels", "judge", "model"),
        least=3.0,
    ),
    QuestionSpec(
        name="retrieved",
        meaning="questions with a passage that answers them",
        unit="share",
        better="higher",
        # the embedded model grades two passages of a trace: it knows of no trace whether one of
        # all its passages answers
        sources=("labels", "judge"),
        least=3.0,
    ),
    QuestionSpec(
        name="cited",
        meaning="citations that support their statement",
        unit="share",
        better="higher",
        sources=("labels", "judge"),
        least=3.0,
    ),
    QuestionSpec(
        name="complete",
        meaning="vital facts that the answer holds",
        unit="share",
        better="higher",
        sources=("judge",),
        least=3.0,
    ),
    QuestionSpec(
        name="cost",
        meaning="US dollars for an answer",
        unit="usd",
        better="lower",
        sources=("requests",),
        least=0.15,
    ),
)

BY_NAME: Mapping[str, QuestionSpec] = {question.name: question for question in QUESTIONS}


class ScoreReader(NamedTuple):
    """How a score becomes a value from 0 to 1 of a question, by a source."""

    question: str
    source: Source
    convert: Callable[[float], float]


def _itself(value: float) -> float:
    return value


def _grade(value: float) -> float:
    return value / 3


def _every_claim(value: float) -> float:
    # people call an answer grounded if nothing in it is unsupported, and so do we of the judge's
    # shares; claims are counted, so the share is 1 exactly or at least a hundredth below
    return float(value > 0.999)


def _some_passage(value: float) -> float:
    return float(value > 0)  # 1 / rank of the first passage of grade 2 or more, 0 without any


READERS: Mapping[tuple[str, str], ScoreReader] = {
    ("answered", BUILTIN_SCORER): ScoreReader("answered", "builtin", _itself),
    ("answered", "judge"): ScoreReader("answered", "judge", _itself),
    ("answered", PEOPLE): ScoreReader("answered", "labels", _itself),
    ("grounding", BUILTIN_SCORER): ScoreReader("grounded", "builtin", _itself),
    ("grounding", "mini"): ScoreReader("grounded", "model", _itself),
    ("grounding", "hhem"): ScoreReader("grounded", "model", _itself),
    ("faithfulness", "judge"): ScoreReader("grounded", "judge", _every_claim),
    ("grounding", PEOPLE): ScoreReader("grounded", "labels", _itself),
    ("relevance", BUILTIN_SCORER): ScoreReader("retrieved", "builtin", _grade),
    ("relevance", "mini"): ScoreReader("retrieved", "model", _grade),
    ("reciprocal_rank", "umbrela"): ScoreReader("retrieved", "judge", _some_passage),
    ("context_relevancy", PEOPLE): ScoreReader("retrieved", "labels", _itself),
    ("citation_precision", BUILTIN_SCORER): ScoreReader("cited", "builtin", _itself),
    ("citation_precision", "judge"): ScoreReader("cited", "judge", _itself),
    ("nugget_vital", "autonuggetizer"): ScoreReader("complete", "judge", _itself),
}
"""The reader of each score, by metric and scorer without its version."""

_REQUEST_SCORES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "works": (
        ("error", BUILTIN_SCORER),
        ("timeout", BUILTIN_SCORER),
        ("empty_answer", BUILTIN_SCORER),
    ),
    "fast": (("latency", "total"),),
    "cost": (("cost_usd", BUILTIN_SCORER), ("cost_usd", ESTIMATE_SCORER)),
}


QUESTION_OF: Mapping[str, str] = {
    **{metric: question for question, pairs in _REQUEST_SCORES.items() for metric, _ in pairs},
    **{metric: reader.question for (metric, _), reader in READERS.items()},
}
"""The question that a metric tells of."""


@cache
def scores_of(question: str) -> tuple[tuple[str, str], ...]:
    """Return (metric, scorer) of what tells of single traces, the most trusted source first."""
    own = [(pair, reader) for pair, reader in READERS.items() if reader.question == question]
    own.sort(key=lambda item: TRUST.index(item[1].source))
    return tuple(pair for pair, _ in own) or _REQUEST_SCORES[question]
