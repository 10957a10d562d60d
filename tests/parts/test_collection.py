"""The parts of one state of services together, through the aggregator that an agent has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.parts.contract import Arrival, ScoredBatch

from tests.aggregate.test_aggregator import SCORER, aggregator
from tests.traces import make_trace


@pytest.mark.parametrize("method", ["learn", "observe"])
def test_an_exception_of_a_part_names_the_part_and_the_run(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def broken(self: object, run: Any, at: float | None) -> None:
        raise ZeroDivisionError

    part = PARTS[0]
    monkeypatch.setattr(part, method, broken)
    one = aggregator()
    for number in (1, 2):
        one.apply(SCORER.score(make_trace(number)).trace)
    with pytest.raises(ZeroDivisionError) as caught:
        one.settle()
    assert caught.value.__notes__ == [
        f"the part {part.name} could not count 2 traces, of which the first is 't1' of 'bot'"
    ]


def test_parts_learn_turn_by_turn_and_observe_many_turns_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[tuple[int, int]] = []
    observed: list[int] = []

    def learn(self: object, arrivals: Sequence[Arrival], turn: int) -> None:
        learned.append((turn, len(arrivals)))

    def observe(self: object, run: ScoredBatch, now: float | None) -> None:
        observed.append(len(run.arrivals))

    monkeypatch.setattr(PARTS[0], "learn", learn)
    monkeypatch.setattr(PARTS[0], "observe", observe)
    one = aggregator()
    for turn in (1, 2, 3):
        assert one.control(turn).version == turn - 1  # a version appears in each of the turns
        for number in (1, 2):
            trace = make_trace(2 * turn + number, tags={"model": f"m{turn}"})
            one.apply(SCORER.score(trace).trace, turn=turn)
    assert learned == [(1, 2), (2, 2)]
    assert observed == []
    one.settle()
    assert learned == [(1, 2), (2, 2), (3, 2)]
    assert observed == [6]
