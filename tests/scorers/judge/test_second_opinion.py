from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge.second_opinion import (
    DISAGREEMENT_METRIC,
    SecondOpinion,
    second_settings,
)
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.questions import JudgeQuestion
from ragmeter.trace import Trace

from tests.scorers.judge.fakes import FakeJudge, family
from tests.traces import make_trace

METRICS = ["relevance", "answered", "citations"]


def tier(judge: FakeJudge, **settings: Any) -> JudgeTier:
    return JudgeTier(judge, JudgeSettings.model_validate({"metrics": METRICS, **settings}))


def ask(
    first: FakeJudge, second: FakeJudge, trace: Trace, share: float = 1.0
) -> tuple[list[Score], Score, ScoringCost]:
    """All results, the last of them, and the cost."""
    both = SecondOpinion(tier(first), tier(second), share, "salt")
    cost = ScoringCost()
    scores = asyncio.run(both.score(trace, cost))
    assert [(score.metric, score.scorer) for score in scores] == list(both.pairs)
    return scores, scores[-1], cost


def test_judges_that_agree() -> None:
    """Grades 2 and 3 are the same side of the cut."""
    scores, last, cost = ask(FakeJudge(), FakeJudge({"umbrela": "3"}), make_trace())
    assert (last.metric, last.scorer, last.value) == (DISAGREEMENT_METRIC, "judge", 0.0)
    assert last.detail == {
        "verdicts": 4,
        "compared": {"relevance": [2, 0], "answered": [1, 0], "citations": [1, 0]},
        "differ": {},
        "second": ["f" * 12],
    }
    assert cost.requests == 8  # two passages, the answer, a citation; twice
    assert scores[0].metric == "relevance"
    assert scores[0].value == 2.0  # the first judge's, untouched


def test_the_share_of_verdicts_that_differ() -> None:
    second = FakeJudge({"umbrela": "1", "citation-support": "partial"})
    _, last, _ = ask(FakeJudge(), second, make_trace())
    assert last.value == 0.75
    assert last.detail is not None
    assert last.detail["differ"]["support:0:kb-1"] == ["full", "partial"]
    assert last.detail["differ"]["grade:1"] == [2, 1]


def test_only_a_share_is_judged_again_and_its_probability_is_kept() -> None:
    first, second = FakeJudge(), FakeJudge()
    both = SecondOpinion(tier(first), tier(second), 0.2, "salt")

    async def all_of(traces: list[Trace]) -> list[Score]:
        return [(await both.score(trace, ScoringCost()))[-1] for trace in traces]

    last = asyncio.run(all_of([make_trace(n) for n in range(300)]))
    again = [score for score in last if score.state is ScoreState.SCORED]
    assert {score.state for score in last} == {ScoreState.SCORED, ScoreState.SAMPLED_OUT}
    assert len(again) / 300 == pytest.approx(0.2, abs=0.07)
    assert {score.probability for score in again} == {0.2}
    assert len(second.asked) == 4 * len(again)
    assert len(first.asked) == 4 * 300


def test_the_draw_is_by_trace_and_salt() -> None:
    def drawn(salt: str) -> list[bool]:
        both = SecondOpinion(tier(FakeJudge()), tier(FakeJudge()), 0.5, salt)

        async def states() -> list[ScoreState]:
            traces = [make_trace(n) for n in range(60)]
            return [(await both.score(trace, ScoringCost()))[-1].state for trace in traces]

        return [state is ScoreState.SCORED for state in asyncio.run(states())]

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


def test_what_one_of_them_could_not_judge_is_not_compared() -> None:
    second = FakeJudge({"umbrela": "0"}, fails=lambda q: "x" if family(q) == "attempted" else None)
    _, last, _ = ask(FakeJudge(), second, make_trace())
    assert last.value == pytest.approx(2 / 3)
    assert last.detail is not None
    assert last.detail["verdicts"] == 3


def refuse(_: JudgeQuestion[Any]) -> str:
    return "judge_unavailable"


def test_a_second_judge_that_fails_costs_nothing_but_its_opinion() -> None:
    scores, last, cost = ask(FakeJudge(), FakeJudge(fails=refuse), make_trace())
    assert (last.state, last.reason, last.value) == (ScoreState.UNSCORED, "judge_unavailable", None)
    assert not [score for score in scores[:-1] if score.state is ScoreState.UNSCORED]
    assert cost.requests == 8


def test_a_second_judge_that_breaks_costs_nothing_but_its_opinion() -> None:
    class Broken(JudgeTier):
        async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
            raise RuntimeError("broken")

    both = SecondOpinion(tier(FakeJudge()), Broken(FakeJudge(), JudgeSettings()), 1.0, "")
    scores = asyncio.run(both.score(make_trace(), ScoringCost()))
    assert (scores[-1].state, scores[-1].reason) == (ScoreState.UNSCORED, "internal_error")
    assert scores[0].state is ScoreState.SCORED


def test_without_a_first_verdict_the_second_is_not_asked() -> None:
    second = FakeJudge()
    _, last, _ = ask(FakeJudge(fails=refuse), second, make_trace())
    assert (last.state, last.reason) == (ScoreState.UNSCORED, "judge_unavailable")
    trace = make_trace(status="error", passages=[], answer=None)
    _, last, _ = ask(FakeJudge(), second, trace)
    assert (last.state, last.reason) == (ScoreState.NOT_APPLICABLE, "no_verdict")
    assert second.asked == []


FIRST = {"base_url": "https://one.example/v1", "model": "one", "api_key": "secret-of-one"}


def settings(**second: Any) -> JudgeSettings | None:
    return second_settings(JudgeSettings.model_validate({**FIRST, "second": second}))


def test_without_a_second_endpoint_the_first_is_asked_again() -> None:
    found = settings()
    assert found is not None
    assert (str(found.base_url), found.model) == ("https://one.example/v1", "one")
    assert found.api_key is not None
    assert found.metrics == METRICS  # no nuggets


def test_another_model_of_the_same_endpoint_has_its_key() -> None:
    found = settings(model="two")
    assert found is not None
    assert (str(found.base_url), found.model) == ("https://one.example/v1", "two")
    assert found.api_key is not None


def test_another_endpoint_is_never_sent_the_first_key() -> None:
    found = settings(base_url="https://two.example/v1", model="two")
    assert found is not None
    assert (found.api_key, found.api_key_file) == (None, None)
    found = settings(base_url="https://two.example/v1", model="two", api_key="secret-of-two")
    assert found is not None
    assert found.api_key is not None
    assert found.api_key.get_secret_value() == "secret-of-two"


def test_there_may_be_nothing_to_ask() -> None:
    assert settings(share=0) is None
    assert second_settings(JudgeSettings.model_validate({**FIRST, "metrics": ["facts"]})) is None


def test_a_second_judge_that_hangs_costs_its_own_score_only() -> None:
    class Hanging(FakeJudge):
        async def ask(self, question: JudgeQuestion[Any], cost: ScoringCost) -> Any:
            cost.requests += 1
            cost.seconds += 1000.0
            await asyncio.sleep(3600)

    both = SecondOpinion(tier(FakeJudge()), tier(Hanging()), 1.0, "salt", patience=0.05)
    cost = ScoringCost()
    scores = asyncio.run(both.score(make_trace(), cost))
    assert scores[0].value == 2.0
    assert (scores[-1].state, scores[-1].reason) == (ScoreState.UNSCORED, "judge_timeout")
    assert cost.requests == 8  # what was asked of it counts
    assert cost.seconds < 100  # the time it hung does not


def test_the_second_judge_has_prices_of_its_own() -> None:
    own = {"base_url": "http://b/v1", "model": "b", "input_usd_per_million": 5}
    judge = {"base_url": "http://a/v1", "model": "a", "input_usd_per_million": 1}
    both = JudgeSettings.model_validate({**judge, "output_usd_per_million": 2, "second": own})
    second = second_settings(both)
    assert second is not None
    assert (second.input_usd_per_million, second.output_usd_per_million) == (5, 2)


CLAIMS: dict[str, Any] = {
    "claims": [
        {"claim": f"claim {n}", "support": "supported", "relevance": "relevant"} for n in range(4)
    ],
    "groundedness": "5",
    "correctness": "4",
}


def compare(first: FakeJudge, second: FakeJudge, *metrics: str) -> Score:
    made = settings(share=1.0)
    assert made is not None
    asked = made.model_copy(update={"metrics": metrics})
    both = SecondOpinion(JudgeTier(first, asked), JudgeTier(second, asked), 1.0, "salt")
    return asyncio.run(both.score(make_trace(), ScoringCost()))[-1]


def test_grades_differ_from_more_than_a_point_on_and_claims_are_labelled_again() -> None:
    second = FakeJudge(
        {
            # claims of its own, which count for nothing
            "claims": {
                **CLAIMS,
                "claims": CLAIMS["claims"][:1],
                "groundedness": "4",
                "correctness": "2",
            },
            "claim-support": lambda q: {
                "1": "supported",
                "2": "unsupported",
                "3": "supported",
                "4": "unsupported",
            },
        }
    )
    last = compare(FakeJudge({"claims": CLAIMS}), second, "claims")
    assert last.detail is not None
    assert last.detail["compared"] == {
        "groundedness": [1, 0],
        "correctness": [1, 1],
        "claims": [4, 2],
    }
    assert last.value == pytest.approx(3 / 6)
    assert last.detail["differ"]["claim:1"] == ["supported", "unsupported"]
    (question,) = [one for one in second.asked if family(one) == "claim-support"]
    for number in range(4):
        assert f"{number + 1}. claim {number}\n" in question.user


def test_the_nuggets_of_the_first_judge_are_labelled_again() -> None:
    nuggets = {"nuggets-create": {"nuggets": ["the door is red", "the key is old"]}}
    replies = {
        "nuggets-assign": lambda q: {"1": "support", "2": "not_support"},
        "nuggets-importance": "okay",
    }
    second = FakeJudge(replies)
    first = JudgeTier(FakeJudge(nuggets), JudgeSettings.model_validate({"metrics": ["nuggets"]}))
    again = JudgeTier(second, JudgeSettings().model_copy(update={"metrics": []}))
    both = SecondOpinion(first, again, 1.0, "salt")
    last = asyncio.run(both.score(make_trace(), ScoringCost()))[-1]
    assert last.detail is not None
    assert last.detail["compared"] == {"nuggets": [2, 1], "nugget importance": [2, 2]}
    assert last.value == 0.75
    assert sorted(map(family, second.asked)) == ["nuggets-assign", "nuggets-importance"]
    assert all("1. the door is red\n2. the key is old" in one.user for one in second.asked)


def test_labels_that_fail_the_second_time_are_no_disagreement() -> None:
    def fails(question: JudgeQuestion[Any]) -> str | None:
        return "judge_timeout" if family(question) == "claim-support" else None

    last = compare(FakeJudge({"claims": CLAIMS}), FakeJudge({"claims": CLAIMS}, fails), "claims")
    assert last.detail is not None
    assert last.detail["compared"] == {"groundedness": [1, 0], "correctness": [1, 0]}
    second = JudgeTier(FakeJudge(fails=refuse), JudgeSettings().model_copy(update={"metrics": []}))
    first = JudgeTier(FakeJudge(), JudgeSettings.model_validate({"metrics": ["nuggets"]}))
    scores = asyncio.run(SecondOpinion(first, second, 1.0, "").score(make_trace(), ScoringCost()))
    assert (scores[-1].state, scores[-1].reason) == (ScoreState.UNSCORED, "judge_unavailable")


def test_canaries_are_asked_about_twice_offline_only() -> None:
    canary = make_trace(reference={"answer": "Open the settings."})
    for canaries, number in ((False, 0), (True, 1)):
        both = SecondOpinion(tier(FakeJudge()), tier(FakeJudge()), 1.0, "s", canaries=canaries)
        scores = asyncio.run(both.score(canary, ScoringCost()))
        assert sum(score.metric == DISAGREEMENT_METRIC for score in scores) == number


def test_what_the_second_judge_costs_stands_under_its_name() -> None:
    class Billed(FakeJudge):
        async def ask(self, question: JudgeQuestion[Any], cost: ScoringCost) -> Any:
            cost.use("judge").calls += 1
            return await super().ask(question, cost)

    _, _, cost = ask(Billed(), Billed(), make_trace())
    assert {name: use.calls for name, use in cost.uses.items()} == {"judge": 4, "second": 4}
