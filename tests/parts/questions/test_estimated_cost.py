"""The question of cost by estimates: marked, and never mixed with costs that traces tell."""

from __future__ import annotations

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.metrics.costs import list_prices
from ragmeter.parts.questions.answers import ServiceRow
from ragmeter.parts.questions.part import QuestionsPart
from ragmeter.parts.questions.traffic import DAY
from ragmeter.scoring.scorer import Scorer

from tests.traces import make_trace

TOKENS = {"input_tokens": 10_000, "output_tokens": 1_000}


def test_estimates_count_where_no_request_of_the_last_day_tells_its_cost() -> None:
    row = ServiceRow.empty()
    now = 10.0 * DAY
    assert row.count_cost(now, None, 0.02) == 0.02
    assert row.count_cost(now, None, None) is None
    assert row.estimates_cost(now)
    assert row.count_cost(now + 60, 0.5, None) == 0.5
    assert row.count_cost(now + 61, None, 0.02) is None
    assert row.count_cost(now + 2 * DAY, None, 0.02) == 0.02
    assert not ServiceRow.empty().estimates_cost(0.0)


def test_the_level_says_that_it_is_an_estimate() -> None:
    for usage, source in (
        (TOKENS, f"estimated from tokens, prices of {list_prices().date}"),
        ({**TOKENS, "cost_usd": 0.5}, "every request"),
    ):
        part = QuestionsPart.of_file(load_settings(environ={}))
        scorer = Scorer(builtin=False)
        for number in range(40):
            trace = make_trace(trace_id=f"t{number}", model="gpt-4o", usage=usage)
            part.add(scorer.score(trace).trace, None)
        cost = next(answer for answer in part.answers() if answer.question == "cost")
        assert cost.source == source
        assert cost.level is not None
        assert cost.level.value == pytest.approx(usage.get("cost_usd", 0.035))
        assert cost.level.source == ("estimate" if usage is TOKENS else "requests")
