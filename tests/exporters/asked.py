"""The questions of a service as fixed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragmeter.parts.questions.catalogue import BY_NAME, QUESTIONS, scores_of
from ragmeter.parts.views import (
    Answer,
    Change,
    Level,
    Movement,
    QuestionAnswers,
    SegmentAnswer,
    SourceChange,
)

__all__ = ["AT", "FakeQuestions", "answer", "asked", "level"]

AT = 1_790_000_000.0  # the moment of the fake agent


def level(value: float = 0.8, spread: float = 0.05, **changes: Any) -> Level:
    found = Level(
        value=value,
        lower=value - spread,
        upper=value + spread,
        window="1h",
        samples=143,
        worth=100.0,
        source="requests",
    )
    return replace(found, **changes)


def answer(question: str, **changes: Any) -> Answer:
    """An answer that is good: of the shares .8, of the times 2.5 s, of the costs $0.0008."""
    about = BY_NAME[question]
    value = {"share": 0.8, "seconds": 2.5, "usd": 0.0008}[about.unit]
    own = level(value, value / 16)
    found = Answer(
        question=question,
        meaning=about.meaning,
        unit=about.unit,
        better=about.better,
        level=own,
        levels={"1h": own},
        movement=Movement(0.0, -1.0, 1.0),
        usual=value,
        state="good",
        source="143 labels + model",
        scores=scores_of(question),
    )
    return replace(found, **changes)


@dataclass
class FakeQuestions(QuestionAnswers):
    """`table` has the answers; every hour of the past has the same level but the fourth."""

    table: dict[str, Sequence[Answer]] = field(default_factory=dict)
    segments: Sequence[SegmentAnswer] = ()
    new: Sequence[Change] = ()
    switched: Sequence[SourceChange] = ()

    def answers(self, service: str) -> Sequence[Answer]:
        return self.table.get(service, ())

    def history(self, service: str, question: str, seconds: int) -> list[tuple[float, Level]]:
        own = next(one.level for one in self.answers(service) if one.question == question)
        step = max(300.0, seconds / 24)
        return [(AT - step * n, own) for n in range(int(seconds / step), 0, -1) if own and n != 4]

    def segment_answers(self, service: str) -> Sequence[SegmentAnswer]:
        return self.segments

    def tag_changes(self, service: str) -> Sequence[Change]:
        return self.new

    def source_changes(self, service: str) -> Sequence[SourceChange]:
        return self.switched

    def before_and_after(
        self, service: str, at: float
    ) -> Sequence[tuple[Answer, Level | None, Level | None]]:
        return [
            (one, one.level and level(one.level.value / 2, 0.05 * one.level.value), one.level)
            for one in self.answers(service)
        ]


def asked(*services: str) -> FakeQuestions:
    """Grounded has moved and has no level, works is bad, the rest is good."""
    answers = [answer(one.name) for one in QUESTIONS]
    answers[0] = answer(
        "works", state="bad", level=level(0.81), usual=1.0, goal=0.99, source="every request"
    )
    answers[3] = answer(
        "grounded",
        state="moved",
        level=None,
        levels={},
        usual=None,
        source="not enough yet",
        movement=Movement(-9.0, -12.0, -6.0),
        note="no level: it needs labels, a judge or more answers scored by the model",
    )
    return FakeQuestions(
        table=dict.fromkeys(services or ("bot",), answers),
        segments=[
            SegmentAnswer("model=m-1", "works", level(0.95), moved=False),
            SegmentAnswer("model=m-2", "works", level(0.6), moved=True),
            SegmentAnswer("model=m-2", "fast", level(3.0), moved=False),
        ],
        new=[Change(AT - 7200, "model", "m-2"), Change(AT - 40_000, "prompt_version", "v9")],
    )
