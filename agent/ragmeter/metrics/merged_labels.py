"""Merge the labels that a scorer gives a trace over time.

Of each label the latest one holds; of two at the same time, yes holds. So merging does not depend
on order, and labels that are delivered again change nothing: exactly-once rests on that.

A feedback always carries what follows from its own labels (`ragmeter.core.feedback`), so of two
that contradict each other the later one holds as a whole, and merged labels never contradict
themselves.

No text and no id is kept: traces and passages are named by hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from ragmeter.core.feedback import (
    ANSWER_LABELS,
    CANNOT_TELL,
    MAX_PASSAGES,
    PASSAGE_LABELS,
    VERDICT_LABELS,
    AnswerLabels,
    Feedback,
    PassageLabels,
    Verdict,
)
from ragmeter.metrics.ranking import rank_order
from ragmeter.trace import Trace

_CANNOT_TELL = 2
_WHOLE = ""  # in place of the hash of a passage: labels of the answer and of the whole trace
_NAMES = frozenset((*PASSAGE_LABELS, *ANSWER_LABELS, *VERDICT_LABELS))


def _check_name(name: str) -> str:
    if name not in _NAMES:
        raise ValueError(f"there is no label {name!r}")
    return name


class TimedLabel(NamedTuple):
    """A label.

    Args:
        passage: The hash of its passage; empty for one of the answer or of the whole trace.
        name: Its name.
        at: When it was given, in Unix seconds.
        value: 0 for no, 1 for yes or 2 for cannot tell.
    """

    passage: str
    name: Annotated[str, AfterValidator(_check_name)]
    at: float
    value: int


TimedLabels = tuple[TimedLabel, ...]
"""One label of each name and passage, in their order."""


class LabelProbability(NamedTuple):
    """The probability with which a trace was chosen to be labelled, as of Unix time `at`."""

    at: float
    probability: float


class GivenLabels(NamedTuple):
    """The labels of a scorer for a trace, and the latest probability that was given, if any."""

    labels: TimedLabels = ()
    probability: LabelProbability | None = None

    def merge(self, new: GivenLabels) -> GivenLabels:
        """Return these and more labels; the order in which they come does not matter."""
        given = [one for one in (self.probability, new.probability) if one is not None]
        return GivenLabels(merge_labels(self.labels, new.labels), max(given, default=None))

    def restrict(self, passages: Sequence[str] | None) -> GivenLabels:
        """Return the labels without those of other passages than these, by their hashes."""
        # else a sender could make the record of a trace as large as they like
        own = {_WHOLE, *(passages or ())}
        return self._replace(labels=tuple(one for one in self.labels if one.passage in own))


class MergedLabels(NamedTuple):
    """The labels that hold, of passages by their hash, of the answer and of the whole trace."""

    passages: dict[str, PassageLabels]
    answer: AnswerLabels
    verdict: Verdict = Verdict()

    def by_rank(self, passages: Sequence[str] | None) -> list[PassageLabels | None]:
        """Return the labels of each of these passages; None if it has none."""
        return [self.passages.get(key) for key in passages or ()]


def read_labels(feedback: Feedback, at: float | None = None) -> TimedLabels:
    """Return the labels of a feedback, as of Unix time `at` or of the time that it gives."""
    at = feedback.timestamp.timestamp() if at is None else at
    labels = [TimedLabel(_WHOLE, name, at, value) for name, value in feedback.answer.given.items()]
    for passage, given in feedback.passages.items():
        key = passage_key(passage)
        labels += [TimedLabel(key, name, at, value) for name, value in given.given.items()]
    for name, verdict in feedback.verdict.given.items():
        code = int(verdict) if isinstance(verdict, bool) else _CANNOT_TELL
        labels.append(TimedLabel(_WHOLE, name, at, code))
    return tuple(sorted(one._replace(value=int(one.value)) for one in labels))


def read_given(feedback: Feedback, at: float | None = None) -> GivenLabels:
    """Return what a feedback gives, as of Unix time `at` or of the time that it gives."""
    at = feedback.timestamp.timestamp() if at is None else at
    probability = feedback.probability
    chosen = None if probability is None else LabelProbability(at, probability)
    return GivenLabels(read_labels(feedback, at), chosen)


def merge_labels(old: TimedLabels, new: TimedLabels) -> TimedLabels:
    """Return the latest of each label."""
    latest = {(one.passage, one.name): one for one in old}
    for one in new:
        key = one.passage, one.name
        latest[key] = max(one, latest.get(key, one))
    return tuple(sorted(latest.values()))


def effective_labels(labels: Iterable[TimedLabel]) -> MergedLabels:
    """Return the labels that hold.

    Raises:
        ValueError: A passage has a label of answers, or the other way round.
    """
    by_passage: dict[str, dict[str, bool]] = {}
    verdict: dict[str, Any] = {}
    for passage, name, _, value in labels:
        if name in VERDICT_LABELS and passage == _WHOLE:
            verdict[name] = CANNOT_TELL if value == _CANNOT_TELL else bool(value)
        else:
            by_passage.setdefault(passage, {})[name] = bool(value)
    answer = AnswerLabels(**by_passage.pop(_WHOLE, {}))
    return MergedLabels(
        {passage: PassageLabels(**given) for passage, given in by_passage.items()},
        answer,
        Verdict(**verdict),
    )


def trace_key(trace_id: str) -> bytes:
    """Return a hash of 128 bits: of 10^9 ids two collide with probability 10^-20."""
    return blake2b(trace_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@lru_cache(4_096)  # passages repeat: a hash is most of what it takes to remember a trace
def passage_key(passage_id: str) -> str:
    """Return the hash of a passage id."""
    # 64 bits: it has to differ from those of one trace only
    return blake2b(passage_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def ranked_passage_keys(trace: Trace) -> tuple[str, ...] | None:
    """Return the hashes of a trace's passages in rank order, as many as can be labelled.

    None if they were not captured.
    """
    if trace.passages is None:
        return None
    passages = trace.passages
    return tuple([passage_key(passages[index].id) for index in rank_order(passages)[:MAX_PASSAGES]])
