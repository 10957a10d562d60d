"""The parts of one state of services together, through the aggregator that an agent has."""

from __future__ import annotations

from typing import Any

import pytest
from ragmeter.app.parts import PARTS

from tests.aggregate.test_aggregator import SCORER, aggregator
from tests.traces import make_trace


def test_an_exception_of_a_part_names_the_part_and_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, run: Any, now: float | None) -> None:
        raise ZeroDivisionError

    part = PARTS[0]
    monkeypatch.setattr(part, "observe", broken)
    one = aggregator()
    for number in (1, 2):
        one.apply(SCORER.score(make_trace(number)).trace)
    with pytest.raises(ZeroDivisionError) as caught:
        one.settle()
    assert caught.value.__notes__ == [
        f"the part {part.name} could not count 2 traces, of which the first is 't1' of 'bot'"
    ]
