from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.nuggets import (
    NuggetFindings,
    creation_question,
    nuggetize,
    passage_windows,
)
from ragmeter.scorers.llm.questions import JudgeQuestion

from tests.scorers.judge.fakes import FakeJudge, facts, family
from tests.tables import each_row


def run(judge: FakeJudge, passages: int = 3) -> NuggetFindings | NoScore:
    texts = [f"passage text {n}" for n in range(passages)]
    return asyncio.run(nuggetize(judge, "query", texts, "answer", ScoringCost()))


def findings(judge: FakeJudge, passages: int = 3) -> NuggetFindings:
    found = run(judge, passages)
    assert isinstance(found, NuggetFindings)
    return found


def test_creation_walks_in_windows_of_ten_and_hands_the_list_on() -> None:
    lists = iter([{"nuggets": facts(3)}, {"nuggets": facts(5)}, {"nuggets": ["the end"]}])
    judge = FakeJudge({"nuggets-create": lambda q: next(lists)})
    found = findings(judge, 21)
    assert found.texts == ["the end"]
    created = [q for q in judge.asked if family(q) == "nuggets-create"]
    assert [q.user.count("BEGIN passage") for q in created] == [10, 10, 1]
    assert "fact number" not in created[0].user
    assert "3. fact number 3" in created[1].user
    assert "5. fact number 5" in created[2].user
    assert judge.depth == 4


def test_long_passages_make_small_windows() -> None:
    assert [len(w) for w in passage_windows(["x" * 40_000] * 5)] == [2, 2, 1]
    assert [len(w) for w in passage_windows(["x"] * 25)] == [10, 10, 5]
    assert passage_windows([]) == []


def test_a_failed_window_fails_all() -> None:
    judge = FakeJudge(fails=lambda q: "judge_timeout" if "passage text 15" in q.user else None)
    assert run(judge, 30) == NoScore("judge_timeout")
    assert len(judge.asked) == 2


def test_the_twenty_most_important_count() -> None:
    def weigh(question: JudgeQuestion[Any]) -> dict[str, str]:
        # of each ten the even ones are vital
        return {n: "okay" if int(n) % 2 else "vital" for n in question.schema["properties"]}

    judge = FakeJudge({"nuggets-create": {"nuggets": facts(30)}, "nuggets-importance": weigh})
    found = findings(judge)
    assert found.created == 30
    assert found.texts[:15] == [f"fact number {n}" for n in range(2, 31, 2)]
    assert found.texts[15:] == [f"fact number {n}" for n in (1, 3, 5, 7, 9)]
    assert found.importance == ["vital"] * 15 + ["okay"] * 5
    assert len(found.supports) == 20


def read(*nuggets: str) -> list[str]:
    return creation_question("q", ["p"], []).read({"nuggets": list(nuggets)})


def test_the_list_is_read_with_care() -> None:
    assert read("  one\n fact ", "One fact", "two") == ["one fact", "two"]
    assert read() == []
    assert len(read(*facts(45))) == 30


@each_row("bad", ["", " \n", "...", "word " * 25, "字" * 301])
def test_a_nugget_that_is_none_is_refused_with_its_number(bad: str) -> None:
    with pytest.raises(ValueError, match="nugget 2 is "):
        read("good", bad)


def test_a_nugget_can_not_pose_as_two() -> None:
    judge = FakeJudge({"nuggets-create": {"nuggets": ["a fact\n2. another"]}})
    found = findings(judge)
    assert found.texts == ["a fact 2. another"]
    assert found.supports == ["support"]
