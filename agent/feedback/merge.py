"""Feedback that comes late, twice or out of order: what one scorer's labels of a trace amount to.

Of each label the latest word holds; at one and the same time yes holds. So merging is free of
order, and a feedback that is delivered again changes nothing: what exactly-once rests on.

A feedback always says what follows from its own labels (`agent.feedback.labels`), so that of two
that contradict each other the later one wins as a whole, and what is merged never contradicts
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agent.feedback.labels import (
    ANSWER_LABELS,
    PASSAGE_LABELS,
    AnswerLabels,
    Feedback,
    PassageLabels,
)

__all__ = ["ANSWER", "Known", "Labels", "Word", "dump", "labels_of", "load", "merged", "words"]

Place = tuple[str, str]
"""(passage id, label); the answer's labels stand under the empty id."""

Word = tuple[float, bool]
"""(Unix time of the label, yes or no)"""

Known = dict[Place, Word]

ANSWER = ""
"""In place of a passage: the label is one of the answer."""


class Labels(NamedTuple):
    passages: dict[str, PassageLabels]
    answer: AnswerLabels


def words(feedback: Feedback) -> Known:
    """What a feedback says."""
    at = feedback.timestamp.timestamp()
    said: Known = {(ANSWER, name): (at, value) for name, value in feedback.answer.given.items()}
    for passage, labels in feedback.passages.items():
        said |= {(passage, name): (at, value) for name, value in labels.given.items()}
    return said


def merged(known: Known, more: Known) -> Known:
    """Both together: the latest word of each label. Neither is changed."""
    return known | {place: max(word, known.get(place, word)) for place, word in more.items()}


def labels_of(known: Known) -> Labels:
    """The labels that hold."""
    of: dict[str, dict[str, bool]] = {}
    for (passage, name), (_, value) in known.items():
        of.setdefault(passage, {})[name] = value
    answer = AnswerLabels(**of.pop(ANSWER, {}))
    return Labels({passage: PassageLabels(**given) for passage, given in of.items()}, answer)


def dump(known: Known) -> list[Any]:
    """JSON-able, and the same for equal content."""
    return [[*place, at, int(value)] for place, (at, value) in sorted(known.items())]


def load(saved: Iterable[Any]) -> Known:
    """What `dump` gave. A label of another version is left out: nobody could tell what it says."""
    return {
        (passage, name): (float(at), bool(value))
        for passage, name, at, value in saved
        if name in (PASSAGE_LABELS if passage else ANSWER_LABELS)
    }
