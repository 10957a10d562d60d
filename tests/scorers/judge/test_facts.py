from __future__ import annotations

from typing import Any

import pytest
from ragmeter.core.score import ScoreState
from ragmeter.scorers.judge.facts import facts_question
from ragmeter.scorers.judge.listed_items import MAX_LISTED, MAX_SHOWN
from ragmeter.scorers.judge.material import JudgeMaterial
from ragmeter.scorers.llm.questions import find_schema_violation

from tests.metrics.help import trace
from tests.scorers.judge.fakes import FakeJudge, judge_trace, scores_of

GIVEN = JudgeMaterial("When was it founded?", ["Founded 1990, 500 people, in Warsaw."], "In 1990.")


def facts(*labels: str) -> dict[str, Any]:
    """Facts `fact 0`, `fact 1`, … with these labels."""
    return {"facts": [{"fact": f"fact {n}", "use": use} for n, use in enumerate(labels)]}


def test_one_call_gives_the_share_of_facts_that_were_used() -> None:
    judge = FakeJudge({"facts": facts("used", "unused", "unused")})
    scores, judge, cost = judge_trace(trace(), judge, metrics=["facts"])
    (score,) = scores.values()
    assert (score.metric, score.scorer, score.fingerprint) == ("groundedness", "judge", "f" * 12)
    assert score.value == pytest.approx(1 / 3)
    assert score.detail == {
        "facts": 3,
        "unused": 2,
        "unused_facts": ["fact 1", "fact 2"],
        "used_facts": ["fact 0"],
    }
    assert cost.requests == 1


def test_passages_without_a_relevant_fact_say_nothing_of_the_answer() -> None:
    scores, _, _ = judge_trace(trace(), FakeJudge({"facts": facts()}), metrics=["facts"])
    assert scores_of(scores) == {"groundedness": "nothing_relevant"}
    assert scores["groundedness"].state is ScoreState.NOT_APPLICABLE


def test_a_failed_call_gives_no_number() -> None:
    judge = FakeJudge(fails=lambda q: "judge_refused")
    scores, _, _ = judge_trace(trace(), judge, metrics=["facts"])
    assert scores_of(scores) == {"groundedness": "judge_refused"}


def test_the_reply_is_read_strictly_and_bounded() -> None:
    asked = facts_question(GIVEN)
    assert asked.read({"facts": [{"fact": "A\nfact", "use": "used"}]})[0] == ("A fact", True)
    with pytest.raises(ValueError, match="fact 2 stands there twice, with other labels"):
        asked.read({"facts": [{"fact": "same", "use": "used"}, {"fact": "Same", "use": "unused"}]})
    with pytest.raises(ValueError, match="fact 1 is empty"):
        asked.read({"facts": [{"fact": "-", "use": "used"}]})
    many = facts(*["unused"] * (MAX_LISTED + 5))
    assert len(asked.read(many)) == MAX_LISTED
    assert find_schema_violation(many, asked.schema) is None
    assert "must be one of" in (find_schema_violation(facts("partly"), asked.schema) or "")
    scores, _, _ = judge_trace(trace(), FakeJudge({"facts": many}), metrics=["facts"])
    detail = scores["groundedness"].detail
    assert detail is not None
    assert len(detail["unused_facts"]) == MAX_SHOWN
