"""What is remembered of a trace until its labels come, and what they have said by then.

No text and no passage id: a label names its passage, and the hash of the name finds its rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from agent.feedback.labels import MAX_PASSAGES, Feedback, PassageLabels
from agent.feedback.merge import ANSWER, Known, Labels, dump, labels_of, load, merged, words

__all__ = [
    "Counted",
    "Frame",
    "Said",
    "Word",
    "by_rank",
    "keys_of",
    "passage_key",
    "said_by",
    "trace_key",
]

Counted = tuple[str, float | None]
"""(metric, value) that is in the windows; None: the metric does not apply."""


def trace_key(trace_id: str) -> bytes:
    # 128 bits: no two of 10^9 ids collide but with probability 10^-20
    return blake2b(trace_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def passage_key(passage_id: str) -> str:
    """64 bits: it has to be another one among the passages of one trace only."""
    return blake2b(passage_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Word(NamedTuple):
    """What one feedback says: its labels by hash of the passage, and when which probability was
    named."""

    known: Known
    probability: tuple[float, float] | None

    def dump(self) -> str:
        return json.dumps([dump(self.known), self.probability], separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Word:
        known, probability = json.loads(text)
        return cls(load(known), tuple(probability) if probability else None)


def said_by(feedback: Feedback, at: float) -> Word:
    """The word of a feedback, as of Unix time `at`."""
    known = {
        (passage_key(passage) if passage != ANSWER else ANSWER, name): (at, value)
        for (passage, name), (_, value) in words(feedback).items()
    }
    probability = feedback.probability
    return Word(known, None if probability is None else (at, probability))


@dataclass(slots=True)
class Said:
    """All that one scorer has said of a trace, and what of it is counted."""

    known: Known = field(default_factory=dict)
    probability: tuple[float, float] | None = None
    counted: tuple[Counted, ...] = ()
    weighed: float = 1.0
    """The probability that what is counted was counted under."""

    def heard(self, word: Word) -> Said:
        """With one word more, whatever the order in which they come."""
        named = [one for one in (self.probability, word.probability) if one is not None]
        return Said(
            merged(self.known, word.known),
            max(named, default=None),
            self.counted,
            self.weighed,
        )

    def labels(self) -> Labels:
        return labels_of(self.known)


@dataclass(slots=True)
class Frame:
    """Of one trace: under which names and when it is in the windows, the probability with which it
    came here, and the hashes of its passages in rank order (None: not captured). `said` is by
    scorer."""

    trace_id: str
    service: str
    segments: tuple[str, ...]
    timestamp: float
    probability: float
    passages: tuple[str, ...] | None
    said: dict[str, Said] = field(default_factory=dict)

    def about(self, word: Word) -> Word:
        """Without labels of passages that are none of this trace's: else anybody could make what
        is kept of a trace as large as they like."""
        mine = {ANSWER, *(self.passages or ())}
        return Word({p: said for p, said in word.known.items() if p[0] in mine}, word.probability)

    def dump(self) -> bytes:
        said = [
            [scorer, dump(one.known), one.probability, one.counted, one.weighed]
            for scorer, one in sorted(self.said.items())
        ]
        body = [self.trace_id, self.service, self.segments, self.timestamp, self.probability]
        return json.dumps([*body, self.passages, said], separators=(",", ":")).encode("ascii")

    @classmethod
    def load(cls, body: bytes) -> Frame:
        """What `dump` gave."""
        trace_id, service, segments, timestamp, probability, passages, said = json.loads(body)
        return cls(
            trace_id,
            service,
            tuple(segments),
            timestamp,
            probability,
            None if passages is None else tuple(passages),
            {scorer: _said(*fields) for scorer, *fields in said},
        )


def _said(
    known: Iterable[Any],
    probability: Sequence[float] | None,
    counted: Sequence[Sequence[Any]],
    weighed: float,
) -> Said:
    named = None if probability is None else (probability[0], probability[1])
    return Said(load(known), named, tuple((name, value) for name, value in counted), weighed)


def keys_of(passages: Sequence[str] | None) -> tuple[str, ...] | None:
    """The hashes of passage ids in rank order, as many as can be labelled."""
    return None if passages is None else tuple(map(passage_key, passages[:MAX_PASSAGES]))


def by_rank(frame: Frame, labels: Labels) -> list[PassageLabels | None]:
    """The labels of each passage, in rank order; None where it has none."""
    return [labels.passages.get(key) for key in frame.passages or ()]
