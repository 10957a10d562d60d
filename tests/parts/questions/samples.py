"""Scored traces for the tests of the questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.parts import AgentSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.questions.part import QuestionsPart
from ragmeter.parts.views import Answer

START = 1_790_000_000 // 3600 * 3600.0
HOUR = 3600.0


def scored(metric: str, value: float, scorer: str = "builtin", **more: Any) -> Score:
    return Score(metric, scorer, ScoreState.SCORED, value, **more)


def request(number: int, at: float, **changes: Any) -> ScoredTrace:
    """A request that works, with an answer of cheap grounding .66."""
    fields: dict[str, Any] = {
        "trace_id": f"t-{number}",
        "service": "bot",
        "timestamp": at,
        "status": "ok",
        "results": (),
        "timings": {"total": 2.0 + number % 10 / 10},
        "cluster": f"c{number}",
        "tenant": f"c{number}",
    }
    fields |= changes
    results = [
        scored("answered", 1.0),
        scored("grounding", 0.56 + number % 21 / 100),
        scored("empty_answer", 0.0),
        scored("cost_usd", 0.001),
        *fields["results"],
    ]
    fields["results"] = results
    return ScoredTrace(**fields)


class Questions:
    """An aggregator with the part alone, which evaluates once a minute."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AgentSettings(**{"alerts": {"evaluation_seconds": 60}, **settings})
        self.aggregator = Aggregator(self.settings, [], [], parts=(QuestionsPart,))

    @property
    def part(self) -> QuestionsPart:
        part = self.aggregator.parts["questions"]
        assert isinstance(part, QuestionsPart)
        return part

    def apply(self, traces: Iterable[ScoredTrace], run: int = 100) -> None:
        """Count traces in runs of so many, as an agent does; where they end changes nothing."""
        rest = iter(traces)
        while batch := list(islice(rest, run)):
            for _ in self.aggregator.apply_all(batch):
                pass

    def answers(self, service: str = "bot") -> Mapping[str, Answer]:
        self.aggregator.settle()
        return {answer.question: answer for answer in self.part.answers(service)}

    def again(self) -> Questions:
        """Another one, restored from the rows of this one."""
        rows, deleted = self.aggregator.parts.changes()
        assert not deleted
        other = Questions()
        other.settings = self.settings
        other.aggregator = Aggregator(self.settings, [], [], parts=(QuestionsPart,))
        other.aggregator.parts.restore(rows)
        other.aggregator.windows.advance(self.aggregator.windows.now or 0.0)
        return other
