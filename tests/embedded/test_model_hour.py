"""The embedded model is fed: by default an hour of traffic gives grounded a number, or none.

What the model says costs as much of the fake clocks as its CPU time was measured to be at most.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.clocks import Clocks
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.parts.questions.answers import ENOUGH_OF_MODEL
from ragmeter.parts.questions.levels import LEAST_WORTH
from ragmeter.parts.views import Answer
from ragmeter.scoring.slow_tiers import SlowTiers, build_controllers
from ragmeter.trace import Trace
from ragmeter.windows.estimators import Z_95

from tests.traces import START, good
from tests.waiting import stop_agent

MINUTES = 60
SECONDS = 0.43  # of CPU for a trace, at most (docs/grounding.md)


class Model:
    """A model that finds three of four answers grounded."""

    tier: Tier = "model"
    pairs: Sequence[MetricScorer] = (("grounding", "mini"),)

    def __init__(self) -> None:
        self.scored = 0

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        self.scored += 1
        cost.seconds += SECONDS
        value = random.Random(trace.trace_id).betavariate(1.5, 0.5)
        return [Score("grounding", "mini", ScoreState.SCORED, value)]


def minutes(folder: Path, model: Model, a_minute: int) -> Iterator[Answer]:
    """Yield what is known of `grounded` after each minute of ordinary traffic."""
    now = [START]
    settings = load_settings(environ={}, overrides={"state": {"path": str(folder / "s.sqlite")}})
    agent = EmbeddedAgent(
        settings,
        [],
        live=True,
        tiers=lambda saved: SlowTiers(
            {"model": model}, controllers=build_controllers(settings, {"model": model})
        ),
        parts=PARTS,
        clocks=Clocks(wall=lambda: now[0], monotonic=lambda: now[0]),
    )
    agent.start()
    number = 0
    try:
        for minute in range(MINUTES):
            batch = []
            for at in range(a_minute):
                when = START + 60 * minute + 60 * (at + 1) / a_minute
                batch.append(good(number, timestamp=when, query=f"Question {number}?"))
                number += 1
            now[0] = START + 60 * (minute + 1)
            agent.accept(batch, "test")
            agent.wait_idle()
            with agent.lock():
                answers = agent.questions("bot").answers("bot")
            yield next(one for one in answers if one.question == "grounded")
    finally:
        stop_agent(agent, 2)


@pytest.mark.parametrize(
    ("a_minute", "enough"), [(1, False), pytest.param(30, True, marks=pytest.mark.slow)]
)
def test_a_number_is_narrow_or_not_there(tmp_path: Path, a_minute: int, enough: bool) -> None:
    model = Model()
    last: Answer | None = None
    for answer in minutes(tmp_path, model, a_minute):
        last = answer
        if answer.level is None:
            assert answer.source == "not enough yet"
            continue
        level = answer.level
        # of sampling: how far the model is off between services is stated beside it
        half = Z_95 * math.sqrt(level.value * (1 - level.value) / level.worth)
        assert half <= ENOUGH_OF_MODEL
        assert level.worth >= LEAST_WORTH
    assert last is not None
    assert (last.level is not None) == enough, model.scored
