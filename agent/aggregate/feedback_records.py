"""Merge the feedback on a trace and remember a trace until its feedback arrives.

Feedback that comes late, twice or out of order: what one scorer's labels of a trace amount to.

Of each label the latest word holds; at one and the same time yes holds. So merging is free of
order, and a feedback that is delivered again changes nothing: what exactly-once rests on.

A feedback always says what follows from its own labels (`ragmeter.core.feedback`), so that of two
that contradict each other the later one wins as a whole, and what is merged never contradicts
itself.

What is remembered of a trace until its labels come, and what they have said by then.

No text and no passage id: a label names its passage, and the hash of the name finds its rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from ragmeter.core.feedback import (
    ANSWER_LABELS,
    MAX_PASSAGES,
    PASSAGE_LABELS,
    AnswerLabels,
    Feedback,
    PassageLabels,
)

_LabelKey = tuple[str, str]
"""(passage id, label); the answer's labels stand under the empty id."""

_TimedLabel = tuple[float, bool]
"""(Unix time of the label, yes or no)"""

TimedLabels = dict[_LabelKey, _TimedLabel]

_ANSWER_KEY = ""
"""In place of a passage: the label is one of the answer."""


class _MergedLabels(NamedTuple):
    passages: dict[str, PassageLabels]
    answer: AnswerLabels


def read_labels(feedback: Feedback) -> TimedLabels:
    """What a feedback says."""
    at = feedback.timestamp.timestamp()
    said: TimedLabels = {
        (_ANSWER_KEY, name): (at, value) for name, value in feedback.answer.given.items()
    }
    for passage, labels in feedback.passages.items():
        said |= {(passage, name): (at, value) for name, value in labels.given.items()}
    return said


def merge_labels(known: TimedLabels, more: TimedLabels) -> TimedLabels:
    """Both together: the latest word of each label. Neither is changed."""
    return known | {place: max(word, known.get(place, word)) for place, word in more.items()}


def effective_labels(known: TimedLabels) -> _MergedLabels:
    """The labels that hold."""
    of: dict[str, dict[str, bool]] = {}
    for (passage, name), (_, value) in known.items():
        of.setdefault(passage, {})[name] = value
    answer = AnswerLabels(**of.pop(_ANSWER_KEY, {}))
    return _MergedLabels({passage: PassageLabels(**given) for passage, given in of.items()}, answer)


def dump_labels(known: TimedLabels) -> list[Any]:
    """JSON-able, and the same for equal content."""
    return [[*place, at, int(value)] for place, (at, value) in sorted(known.items())]


def load_labels(saved: Iterable[Any]) -> TimedLabels:
    """What `dump` gave. A label of another version is left out: nobody could tell what it says."""
    return {
        (passage, name): (float(at), bool(value))
        for passage, name, at, value in saved
        if name in (PASSAGE_LABELS if passage else ANSWER_LABELS)
    }


_CountedLabel = tuple[str, float | None]
"""(metric, value) that is in the windows; None: the metric does not apply."""


def trace_key(trace_id: str) -> bytes:
    # 128 bits: no two of 10^9 ids collide but with probability 10^-20
    return blake2b(trace_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _passage_key(passage_id: str) -> str:
    """64 bits: it has to be another one among the passages of one trace only."""
    return blake2b(passage_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class FeedbackLabels(NamedTuple):
    """What one feedback says: its labels by hash of the passage, and when which probability was
    named."""

    label_values: TimedLabels
    probability: tuple[float, float] | None

    def dump(self) -> str:
        return json.dumps([dump_labels(self.label_values), self.probability], separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> FeedbackLabels:
        known, probability = json.loads(text)
        return cls(load_labels(known), tuple(probability) if probability else None)


def labels_at(feedback: Feedback, at: float) -> FeedbackLabels:
    """The word of a feedback, as of Unix time `at`."""
    known = {
        (_passage_key(passage) if passage != _ANSWER_KEY else _ANSWER_KEY, name): (at, value)
        for (passage, name), (_, value) in read_labels(feedback).items()
    }
    probability = feedback.probability
    return FeedbackLabels(known, None if probability is None else (at, probability))


@dataclass(slots=True)
class ScorerFeedback:
    """All that one scorer has said of a trace, and what of it is counted."""

    label_values: TimedLabels = field(default_factory=dict)
    probability: tuple[float, float] | None = None
    counted: tuple[_CountedLabel, ...] = ()
    weighed: float = 1.0
    """The probability that what is counted was counted under."""

    def add(self, word: FeedbackLabels) -> ScorerFeedback:
        """With one word more, whatever the order in which they come."""
        named = [one for one in (self.probability, word.probability) if one is not None]
        return ScorerFeedback(
            merge_labels(self.label_values, word.label_values),
            max(named, default=None),
            self.counted,
            self.weighed,
        )

    def labels(self) -> _MergedLabels:
        return effective_labels(self.label_values)


@dataclass(slots=True)
class FeedbackTrace:
    """Of one trace: under which names and when it is in the windows, the probability with which it
    came here, and the hashes of its passages in rank order (None: not captured). `said` is by
    scorer."""

    trace_id: str
    service: str
    segments: tuple[str, ...]
    timestamp: float
    probability: float
    passages: tuple[str, ...] | None
    by_scorer: dict[str, ScorerFeedback] = field(default_factory=dict)

    def restrict(self, word: FeedbackLabels) -> FeedbackLabels:
        """Without labels of passages that are none of this trace's: else anybody could make what
        is kept of a trace as large as they like."""
        mine = {_ANSWER_KEY, *(self.passages or ())}
        return FeedbackLabels(
            {p: said for p, said in word.label_values.items() if p[0] in mine}, word.probability
        )

    def dump(self) -> bytes:
        said = [
            [scorer, dump_labels(one.label_values), one.probability, one.counted, one.weighed]
            for scorer, one in sorted(self.by_scorer.items())
        ]
        body = [self.trace_id, self.service, self.segments, self.timestamp, self.probability]
        return json.dumps([*body, self.passages, said], separators=(",", ":")).encode("ascii")

    @classmethod
    def load(cls, body: bytes) -> FeedbackTrace:
        """What `dump` gave."""
        trace_id, service, segments, timestamp, probability, passages, said = json.loads(body)
        return cls(
            trace_id,
            service,
            tuple(segments),
            timestamp,
            probability,
            None if passages is None else tuple(passages),
            {scorer: _load_scorer_feedback(*fields) for scorer, *fields in said},
        )


def _load_scorer_feedback(
    known: Iterable[Any],
    probability: Sequence[float] | None,
    counted: Sequence[Sequence[Any]],
    weighed: float,
) -> ScorerFeedback:
    named = None if probability is None else (probability[0], probability[1])
    return ScorerFeedback(
        load_labels(known), named, tuple((name, value) for name, value in counted), weighed
    )


def hash_passage_ids(passages: Sequence[str] | None) -> tuple[str, ...] | None:
    """The hashes of passage ids in rank order, as many as can be labelled."""
    return None if passages is None else tuple(map(_passage_key, passages[:MAX_PASSAGES]))


def labels_by_rank(frame: FeedbackTrace, labels: _MergedLabels) -> list[PassageLabels | None]:
    """The labels of each passage, in rank order; None where it has none."""
    return [labels.passages.get(key) for key in frame.passages or ()]
