"""Merge the feedback on a trace, and remember a trace until its feedback arrives.

Of each label the latest one holds; of two at the same time, yes holds. So merging does not depend
on order, and a feedback that is delivered again changes nothing: exactly-once rests on that.

A feedback always carries what follows from its own labels (`ragmeter.core.feedback`), so of two
that contradict each other the later one holds as a whole, and merged labels never contradict
themselves.

No text and no passage id is stored: a label names its passage by a hash, which finds its rank.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from ragmeter.core.clocks import FUTURE_SECONDS
from ragmeter.core.feedback import (
    ANSWER_LABELS,
    CANNOT_TELL,
    MAX_PASSAGES,
    PASSAGE_LABELS,
    PEOPLE,
    VERDICT_LABELS,
    AnswerLabels,
    Feedback,
    PassageLabels,
    Verdict,
)
from ragmeter.core.score import Score
from ragmeter.metrics.labelled import SAMPLE_STRATUM, SORTED_BY, LabelValue, label_results
from ragmeter.store.pending import NewFeedback
from ragmeter.windows.sums import upstream_stratum

# By (passage id or hash, label): (Unix time of the label, 0 no, 1 yes or 2 cannot tell). The labels
# of the answer and of the whole trace have an empty id.
TimedLabels = dict[tuple[str, str], tuple[float, int]]
_CANNOT_TELL = 2

_ANSWER_KEY = ""

_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` makes an encoder each time


class MergedLabels(NamedTuple):
    """The labels that hold, of passages by id or hash, of the answer and of the whole trace."""

    passages: dict[str, PassageLabels]
    answer: AnswerLabels
    verdict: Verdict = Verdict()


def read_labels(feedback: Feedback) -> TimedLabels:
    """Return the labels of a feedback."""
    at = feedback.timestamp.timestamp()
    by_passage = {_ANSWER_KEY: feedback.answer, **feedback.passages}
    given = {
        (passage, name): (at, int(value))
        for passage, labels in by_passage.items()
        for name, value in labels.given.items()
    }
    for name, verdict in feedback.verdict.given.items():
        code = int(verdict) if isinstance(verdict, bool) else _CANNOT_TELL
        given[_ANSWER_KEY, name] = (at, code)
    return given


def merge_labels(old: TimedLabels, new: TimedLabels) -> TimedLabels:
    """Return the latest of each label; neither argument is changed."""
    return old | {key: max(label, old.get(key, label)) for key, label in new.items()}


def effective_labels(labels: TimedLabels) -> MergedLabels:
    """Return the labels that hold."""
    by_passage: dict[str, dict[str, bool]] = {}
    verdict: dict[str, Any] = {}
    for (passage, name), (_, value) in labels.items():
        if name in VERDICT_LABELS:
            verdict[name] = CANNOT_TELL if value == _CANNOT_TELL else bool(value)
        else:
            by_passage.setdefault(passage, {})[name] = bool(value)
    answer = AnswerLabels(**by_passage.pop(_ANSWER_KEY, {}))
    return MergedLabels(
        {passage: PassageLabels(**given) for passage, given in by_passage.items()},
        answer,
        Verdict(**verdict),
    )


def dump_labels(labels: TimedLabels) -> list[Any]:
    """Return the labels as JSON-able values, the same for equal content."""
    return [[*key, at, int(value)] for key, (at, value) in sorted(labels.items())]


def load_labels(saved: Iterable[Any]) -> TimedLabels:
    """Return the labels of a dump; raise ValueError for one that there is not."""
    labels: TimedLabels = {}
    for passage, name, at, value in saved:
        if name not in (PASSAGE_LABELS if passage else (*ANSWER_LABELS, *VERDICT_LABELS)):
            raise ValueError(f"there is no label {name!r}")
        labels[passage, name] = float(at), int(value)
    return labels


def trace_key(trace_id: str) -> bytes:
    """Return a hash of 128 bits: of 10^9 ids two collide with probability 10^-20."""
    return blake2b(trace_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def hash_passage_ids(passages: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the hashes of passage ids in rank order, as many as can be labelled."""
    return None if passages is None else tuple(map(_passage_key, passages[:MAX_PASSAGES]))


@lru_cache(4_096)  # passages repeat: a hash is most of what it takes to remember a trace
def _passage_key(passage_id: str) -> str:
    # 64 bits: it has to differ from those of one trace only
    return blake2b(passage_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class LabelProbability(NamedTuple):
    """The probability with which a trace was chosen to be labelled, as of Unix time `at`.

    `drawn_here`: from a pool that a trace enters once a local model has scored it, so that the
    model's probability is in it.
    """

    at: float
    probability: float
    drawn_here: bool = False


def _dump_probability(given: LabelProbability | None) -> Sequence[float] | None:
    return given if given is None or given.drawn_here else given[:2]


class FeedbackLabels(NamedTuple):
    """The labels of one feedback by hash of the passage, and its probability if given."""

    label_values: TimedLabels
    probability: LabelProbability | None

    def dump(self) -> str:
        """Return the labels as JSON."""
        return _encode([dump_labels(self.label_values), _dump_probability(self.probability)])

    @classmethod
    def load(cls, text: str) -> FeedbackLabels:
        """Return the labels of a dump."""
        labels, probability = json.loads(text)
        return cls(load_labels(labels), LabelProbability(*probability) if probability else None)


def labels_at(feedback: Feedback, at: float, *, drawn: bool = False) -> FeedbackLabels:
    """Return the labels of a feedback as of Unix time `at`; `drawn`: of a trace drawn here."""
    labels = {
        (_passage_key(passage) if passage != _ANSWER_KEY else _ANSWER_KEY, name): (at, value)
        for (passage, name), (_, value) in read_labels(feedback).items()
    }
    probability = feedback.probability
    given = None if probability is None else LabelProbability(at, probability, drawn)
    return FeedbackLabels(labels, given)


@dataclass(slots=True)
class ScorerFeedback:
    """All labels of one scorer for a trace, and which of their results are counted.

    Args:
        probability: The latest that was given.
        counted: (metric, value) in the windows under the probability `weighed`; a value is None
            if the metric does not apply, and a text says why it is missing.
    """

    label_values: TimedLabels = field(default_factory=dict)
    probability: LabelProbability | None = None
    counted: tuple[tuple[str, LabelValue], ...] = ()
    weighed: float = 1.0

    def add(self, labels: FeedbackLabels) -> ScorerFeedback:
        """Return the feedback with more labels; the order in which they come does not matter."""
        given = [one for one in (self.probability, labels.probability) if one is not None]
        latest = max(given, default=None)
        if latest is not None:  # a correction is of the same draw
            same = (one for one in given if one.probability == latest.probability)
            latest = latest._replace(drawn_here=any(one.drawn_here for one in same))
        return ScorerFeedback(
            merge_labels(self.label_values, labels.label_values),
            latest,
            self.counted,
            self.weighed,
        )

    @property
    def drawn_here(self) -> bool:
        """Whether the trace was drawn from the pool of traces here."""
        return self.probability is not None and self.probability.drawn_here

    def drawn_from(self, trace: FeedbackTrace, scorer: str) -> dict[str, float] | None:
        """Return the built-in scores of a trace that was drawn to be labelled by people."""
        return trace.cheap if scorer == PEOPLE and self.probability is not None else None

    def labels(self) -> MergedLabels:
        """Return the labels that hold."""
        return effective_labels(self.label_values)


class ModelSample(NamedTuple):
    """The score of a local model that helps to estimate what people say of grounding.

    Args:
        scorer: The name of the estimate that it helps.
        value: The score; None where the model has none.
        probability: With which the trace was scored, of all inclusion.
        share: With which the model scored the trace, of all that were counted. It is in the
            probability of a label of a trace that was drawn here already.
    """

    scorer: str
    value: float | None
    probability: float
    share: float

    @property
    def stratum(self) -> str:
        """The stratum of the trace, which the draw for the model has chosen."""
        return upstream_stratum(SAMPLE_STRATUM, self.probability)

    def results(
        self, values: Iterable[tuple[str, LabelValue]], labels: ScorerFeedback
    ) -> list[Score]:
        """Return the results of these values among people's labels."""
        probability = labels.weighed * (1.0 if labels.drawn_here else self.share)
        own = [value for value in values if value[0] == SORTED_BY]
        cheap = {} if self.value is None else {SORTED_BY: self.value}
        return label_results(
            values=own,
            scorer=self.scorer,
            probability=probability,
            cheap=cheap,
            stratum=self.stratum,
        )


@dataclass(slots=True)
class FeedbackTrace:
    """A counted trace that feedback may arrive for, under its bounded names.

    Args:
        probability: The upstream inclusion probability of the trace.
        passages: The hashes of its passages in rank order; None: not captured.
        by_scorer: The feedback by scorer.
        cheap: Where people's labels are drawn (`sampling.people`), the built-in scores by metric of
            theirs that they help to estimate; else None.
        sample: The score of a local model beside them, once it has come.
    """

    trace_id: str
    service: str
    segments: tuple[str, ...]
    timestamp: float
    probability: float
    passages: tuple[str, ...] | None
    by_scorer: dict[str, ScorerFeedback] = field(default_factory=dict)
    cheap: dict[str, float] | None = None
    sample: ModelSample | None = None

    def restrict(self, labels: FeedbackLabels) -> FeedbackLabels:
        """Return the labels without those of passages of other traces."""
        # else a sender could make the record of a trace as large as they like
        own = {_ANSWER_KEY, *(self.passages or ())}
        values = {key: value for key, value in labels.label_values.items() if key[0] in own}
        return labels._replace(label_values=values)

    def dump(self) -> bytes:
        """Return the trace and its feedback as JSON."""
        feedback = [
            [
                scorer,
                dump_labels(one.label_values),
                _dump_probability(one.probability),
                one.counted,
                one.weighed,
            ]
            for scorer, one in sorted(self.by_scorer.items())
        ]
        body = [self.trace_id, self.service, self.segments, self.timestamp, self.probability]
        return _encode([*body, self.passages, feedback, self.cheap, self.sample]).encode("ascii")

    @classmethod
    def load(cls, body: bytes) -> FeedbackTrace:
        """Return the trace of a dump."""
        trace_id, service, segments, timestamp, probability, passages, feedback, cheap, sample = (
            json.loads(body)
        )
        by_scorer = {
            scorer: ScorerFeedback(
                load_labels(labels),
                None if given is None else LabelProbability(*given),
                tuple((name, value) for name, value in counted),
                weighed,
            )
            for scorer, labels, given, counted, weighed in feedback
        }
        names = None if passages is None else tuple(passages)
        head = (trace_id, service, tuple(segments), timestamp, probability)
        model = None if sample is None else ModelSample(*sample)
        return cls(*head, names, by_scorer, cheap, model)


def labels_by_rank(trace: FeedbackTrace, labels: MergedLabels) -> list[PassageLabels | None]:
    """Return the labels of each passage in rank order; None if it has none."""
    return [labels.passages.get(key) for key in trace.passages or ()]


def feedback_rows(
    items: Sequence[Feedback],
    event_time: float | None,
    now: float = math.inf,
    drawn: Container[str] = (),
) -> list[NewFeedback]:
    """Return the rows of feedback, at `event_time` or the time of each label.

    A label more than `FUTURE_SECONDS` after `now` (Unix time) gets that time: of two labels the
    later one counts, and a wrong clock must not decide for years. `drawn`: ids of drawn traces.
    """
    rows = []
    for item in items:
        at = item.timestamp.timestamp()
        if at > now + FUTURE_SECONDS:
            at = now
        rows.append(
            NewFeedback(
                trace=trace_key(item.trace_id),
                service=item.service,
                scorer=item.scorer,
                since=at if event_time is None else event_time,
                body=labels_at(item, at, drawn=item.trace_id in drawn).dump(),
            )
        )
    return rows
