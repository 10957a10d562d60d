from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.registry import metric_specs
from ragmeter.scorers.judge import citations
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.questions import JudgeQuestion
from ragmeter.trace import Trace

from tests.metrics.help import trace
from tests.metrics.test_registry import TRACE
from tests.scorers.judge.fakes import FakeJudge, facts, family, judge_trace, scores_of
from tests.tables import each_row
from tests.waiting import until_async

PASSAGES = [
    {"id": f"kb-{n}", "text": f"Passage {n} says that refunds take 14 days."} for n in range(5)
]
ANSWER = (
    "Refunds take 14 working days [1]. Parcels are weighed at the warehouse [2][3]."
    " Invoices arrive by email every month [1][4]. Support answers questions on weekdays."
)


def example(**fields: Any) -> Trace:
    """Five passages and five citations, as the workload of the baseline has."""
    return trace(**{"passages": PASSAGES, "answer": ANSWER, **fields})


def test_calls_and_round_trips_of_the_baseline_workload() -> None:
    scores, judge, cost = judge_trace(example())
    assert all(score.state is ScoreState.SCORED for score in scores.values())
    assert len(judge.asked) == cost.requests == 16
    assert {name: judge.count(name) for name in map(family, judge.asked)} == {
        **dict.fromkeys(["umbrela", "citation-support"], 5),
        **dict.fromkeys(["attempted", "nuggets-create"], 1),
        **dict.fromkeys(["nuggets-importance", "nuggets-assign"], 2),
    }
    assert judge.depth == 3  # grades, nuggets, and both kinds of their labels
    assert judge.widest == 11


def test_more_than_20_nuggets_take_one_round_trip_more() -> None:
    judge = FakeJudge({"nuggets-create": {"nuggets": facts(30)}})
    _, judge, _ = judge_trace(example(), judge)
    assert judge.depth == 4
    assert (judge.count("nuggets-importance"), judge.count("nuggets-assign")) == (3, 2)


def test_values() -> None:
    grades = iter("03021")
    judge = FakeJudge(
        {
            "umbrela": lambda q: {"grade": next(grades)},
            "citation-support": lambda q: {"support": "none" if "Passage 0" in q.user else "full"},
            "nuggets-importance": lambda q: {
                n: "vital" if n in "123" else "okay" for n in q.schema["properties"]
            },
            "nuggets-assign": lambda q: {
                n: "support" if n in "123" else "not_support" for n in q.schema["properties"]
            },
            "nuggets-create": {"nuggets": facts(6)},
            "attempted": "partial",
        }
    )
    scores, _, _ = judge_trace(example(), judge, k=[3, 9])
    found = scores_of(scores)
    assert found["relevance"] == 1.2
    assert found["precision_at_k:3"] == pytest.approx(1 / 3)
    assert found["precision_at_k:9"] == "too_few_passages"
    assert found["average_precision_at_k:3"] == 0.5
    assert found["reciprocal_rank"] == 0.5
    assert found["answered"] == 1.0
    assert scores["answered"].detail == {"attempt": "partial"}
    assert found["citation_precision"] == 0.6
    assert found["citation_recall"] == pytest.approx((0 + 1 + 0.5 + 0) / 4)
    assert found["citation_passage_precision"] == 0.75
    assert found["nugget_all"] == 0.5
    assert found["nugget_vital"] == 1.0
    assert found["nugget_weighted"] == pytest.approx(3 / 4.5)
    assert scores["relevance"].detail == {"grades": [0, 3, 0, 2, 1]}
    detail = scores["nugget_all"].detail
    assert detail is not None
    assert detail["created"] == 6
    assert detail["nuggets"][0] == {
        "text": "fact number 1",
        "importance": "vital",
        "support": "support",
    }


def test_passages_are_judged_by_rank() -> None:
    passages = [dict(PASSAGES[n], rank=5 - n) for n in range(5)]
    judge = FakeJudge(
        {"umbrela": lambda q: {"grade": "3" if "Passage 4" in q.user else "0"}},
    )
    scores, _, _ = judge_trace(example(passages=passages), judge, k=[1])
    assert scores["precision_at_k:1"].value == 1.0
    assert scores["relevance"].detail == {"grades": [0, 0, 0, 0, 3]}  # as the trace has them


def undisturbed() -> dict[str, float | str | None]:
    return scores_of(judge_trace(example(), FakeJudge(), k=[3, 5])[0])


NUGGETS = {name for name in metric_specs() if name.startswith("nugget_")}
OF_ALL = {"nugget_all", "nugget_all_strict", "nugget_count"}  # need no importance
CITATIONS = {"citation_precision", "citation_recall", "citation_f1"}
CITATIONS |= {"citation_passage_precision", "citation_passage_f1"}
RANKING = {"relevance", "reciprocal_rank", "precision_at_k:3", "precision_at_k:5"}
RANKING |= {"average_precision_at_k:3", "average_precision_at_k:5", "ndcg_at_k:3", "ndcg_at_k:5"}


@each_row("number", range(16))
def test_one_failed_call_leaves_everything_else_as_it_was(number: int) -> None:
    judge = FakeJudge()
    judge.fails = lambda q: "judge_timeout" if judge.asked[number : number + 1] == [q] else None
    scores, _, _ = judge_trace(example(), judge, k=[3, 5])
    failed = family(judge.asked[number])
    found = scores_of(scores)
    whole = undisturbed()
    may = {
        "umbrela": RANKING | NUGGETS,
        "citation-support": CITATIONS,
        "attempted": {"answered"},
        "nuggets-create": NUGGETS,
        "nuggets-importance": NUGGETS - OF_ALL,
        "nuggets-assign": {name for name in NUGGETS if not name.endswith("_count")},
    }[failed]
    changed = {name for name in whole if found[name] != whole[name]}
    assert changed <= may
    # every judged value is perfect or an equal mean here: what changed is a gap, and no number
    assert {found[name] for name in changed if name not in CITATIONS} <= {"judge_timeout"}
    if failed in ("attempted", "nuggets-create", "nuggets-importance"):
        assert changed == may
    if failed == "umbrela":
        rank = int(judge.asked[number].user.split("Passage ")[1][0])
        assert {"precision_at_k:5", "ndcg_at_k:3"} <= changed
        assert ("precision_at_k:3" in changed) == (rank < 3)
        assert ("reciprocal_rank" in changed) == (rank == 0)
        assert not changed & NUGGETS  # four other passages hold the facts
        assert scores["relevance"].detail == {
            "grades": [None if n == rank else 2 for n in range(5)],
            "missing": {"judge_timeout": [rank]},
        }


def test_a_failed_assignment_takes_the_class_it_holds() -> None:
    judge = FakeJudge(
        {
            "nuggets-importance": lambda q: dict.fromkeys(
                q.schema["properties"], "vital" if len(q.schema["properties"]) == 10 else "okay"
            )
        },
        fails=lambda q: (
            "unparsable"
            if family(q) == "nuggets-assign" and len(q.schema["properties"]) == 2
            else None
        ),
    )
    found = scores_of(judge_trace(example(), judge)[0])
    assert found["nugget_vital"] == found["nugget_vital_strict"] == 1.0
    assert found["nugget_all"] == found["nugget_weighted"] == "unparsable"


def test_unknown_importance_of_more_than_20_nuggets_takes_all() -> None:
    judge = FakeJudge(
        {"nuggets-create": {"nuggets": facts(21)}},
        fails=lambda q: "judge_error" if family(q) == "nuggets-importance" else None,
    )
    found = scores_of(judge_trace(example(), judge)[0])
    assert {found[name] for name in NUGGETS} == {"judge_error"}
    assert judge.count("nuggets-assign") == 0


def test_everything_failing_leaves_a_reason_everywhere() -> None:
    scores, _, cost = judge_trace(example(), FakeJudge(fails=lambda q: "judge_unavailable"))
    assert {s.state for s in scores.values()} == {ScoreState.UNSCORED}
    assert {s.reason for s in scores.values()} == {"judge_unavailable"}
    assert {s.fingerprint for s in scores.values()} == {None}
    assert cost.requests == 11  # no nugget is asked for without a relevant passage


def test_a_broken_family_disturbs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("broken formula")

    monkeypatch.setattr(citations, "citation_scores", broken)
    found = scores_of(judge_trace(example(), k=[3, 5])[0])
    whole = undisturbed()
    assert {found[name] for name in CITATIONS} == {"internal_error"}
    assert all(found[name] == whole[name] for name in whole.keys() - CITATIONS)
    assert "broken formula" in caplog.text


def test_a_call_that_breaks_is_an_internal_error_of_what_it_belongs_to() -> None:
    judge = FakeJudge({"attempted": {"wrong": "shape"}})  # a client would not let it through
    found = scores_of(judge_trace(example(), judge)[0])
    assert found["answered"] == "internal_error"
    assert found["relevance"] == 2.0


@each_row(
    ("fields", "expected"),
    [
        ({"passages": None}, {"relevance": "no_passages_captured"}),
        ({"passages": None}, {"citation_f1": "no_passages_captured"}),
        ({"passages": None}, {"nugget_all": "no_passages_captured", "answered": 1.0}),
        ({"passages": []}, {"relevance": "no_passages", "reciprocal_rank": "no_passages"}),
        ({"passages": []}, {"nugget_all": "no_passages", "citation_precision": 0.0}),
        ({"query": None}, {"relevance": "no_query", "answered": "no_query"}),
        ({"query": " "}, {"nugget_vital": "no_query", "citation_recall": 0.75}),
        ({"answer": None}, {"answered": "no_text", "nugget_all": "no_text", "relevance": 2.0}),
        ({"answer": " "}, {"answered": 0.0, "nugget_all": "empty_answer", "relevance": 2.0}),
        ({"answer": "I don't know."}, {"citation_f1": "no_answer", "nugget_all": 1.0}),
        ({"answer": "It takes 14 days."}, {"citation_f1": "no_citations"}),
        ({"status": "error"}, {"answered": "error", "nugget_all": "error", "relevance": 2.0}),
        ({"answer": "x" * 20_001}, {"answered": "too_long", "nugget_all": "too_long"}),
        ({"answer": "Refunds are slow [1]." + " So it is." * 298}, {"citation_recall": 1.0}),
        ({"answer": "Refunds are slow [1]." + " So it is." * 299}, {"citation_recall": "too_long"}),
        ({"query": "x" * 4_001}, {"relevance": "too_long", "nugget_all": "too_long"}),
        ({"passages": [{"id": "a"}]}, {"relevance": "no_text", "nugget_all": "no_text"}),
    ],
)
def test_states(fields: dict[str, Any], expected: dict[str, float | str]) -> None:
    found = scores_of(judge_trace(example(**fields))[0])
    assert {name: found[name] for name in expected} == expected


def test_nothing_is_asked_in_vain() -> None:
    def asked(**fields: Any) -> int:
        return len(judge_trace(example(**fields))[1].asked)

    assert asked(answer=" ", passages=[]) == 0
    assert asked(passages=None) == 1  # does it attempt the question
    assert asked(query=None) == 5  # citations need no query
    irrelevant = FakeJudge({"umbrela": "0"})
    scores, judge, _ = judge_trace(example(), irrelevant)
    assert judge.count("nuggets-create") == 0
    assert scores["nugget_all"].reason == "nothing_relevant"
    assert scores["nugget_all"].state is ScoreState.NOT_APPLICABLE
    nothing, judge, _ = judge_trace(example(), FakeJudge({"nuggets-create": {"nuggets": []}}))
    assert nothing["nugget_all"].reason == "no_nuggets"
    assert judge.count("nuggets-assign") == 0


def test_nuggets_come_from_passages_of_grade_1_and_up_in_rank_order() -> None:
    passages = [dict(PASSAGES[n], rank=5 - n) for n in range(5)]
    judge = FakeJudge({"umbrela": lambda q: {"grade": "1" if "3 says" in q.user else "0"}})
    judge_trace(example(passages=passages), judge)
    (created,) = [q for q in judge.asked if family(q) == "nuggets-create"]
    assert "Passage 3 says" in created.user
    assert created.user.count("BEGIN passage") == 1
    judge = FakeJudge({"umbrela": lambda q: {"grade": "0" if "3 says" in q.user else "1"}})
    judge_trace(example(passages=passages), judge)
    (created,) = [q for q in judge.asked if family(q) == "nuggets-create"]
    shown = [created.user.index(f"Passage {n} says") for n in (4, 2, 1, 0)]
    assert shown == sorted(shown)


def test_what_is_too_long_is_not_cut_and_touches_no_other_passage() -> None:
    passages = [*PASSAGES[:4], {"id": "long", "text": "word " * 10_000}]
    scores, judge, _ = judge_trace(example(passages=passages), k=[3, 5])
    found = scores_of(scores)
    assert found["relevance"] == 2.0
    assert scores["relevance"].detail == {
        "grades": [2, 2, 2, 2, None],
        "missing": {"too_long": [4]},
    }
    assert (found["precision_at_k:3"], found["precision_at_k:5"]) == (1.0, "too_long")
    assert max(len(q.user) for q in judge.asked) < 5_000


def test_the_work_on_one_trace_is_bounded() -> None:
    passages = [{"id": str(n), "text": f"passage {n}"} for n in range(300)]
    answer = "Refunds take 14 days " + "".join(f"[{n}]" for n in range(1, 200)) + "."
    scores, judge, _ = judge_trace(example(passages=passages, answer=answer))
    assert judge.count("umbrela") == 100
    assert judge.count("citation-support") == 100
    assert judge.count("nuggets-create") == 10
    assert scores["relevance"].value == 2.0
    assert scores["ndcg_at_k:5"].reason == "too_long"
    assert all(len(json.dumps(s.detail or {})) < 20_000 for s in scores.values())


def test_fingerprints_name_the_instrument() -> None:
    same, _, _ = judge_trace(example())
    # of nDCG the formula has changed: its scores do not mix with those of before
    (changed,) = {score.fingerprint for score in same.values()} - {"f" * 12}
    assert same["ndcg_at_k:5"].fingerprint == changed
    names = ("umbrela", "citation-support", "nuggets-create", "nuggets-importance")
    prints = {name: f"{number:012x}" for number, name in enumerate(names)}
    found, _, _ = judge_trace(example(), FakeJudge(fingerprints=prints))
    assert found["precision_at_k:5"].fingerprint == prints["umbrela"]
    assert found["citation_f1"].fingerprint == prints["citation-support"]
    assert found["answered"].fingerprint == "f" * 12
    chain = {found[name].fingerprint for name in OF_ALL}
    weighed = {found[name].fingerprint for name in NUGGETS - OF_ALL}
    assert len(chain) == len(weighed) == 1
    assert chain.isdisjoint(weighed)
    other = FakeJudge(fingerprints={**prints, "umbrela": "a" * 12})
    assert judge_trace(example(), other)[0]["nugget_all"].fingerprint not in chain
    assert all(len(one or "") == 12 for one in chain | weighed)
    # the same chain with more nuggets than are kept
    many = FakeJudge({"nuggets-create": {"nuggets": facts(30)}}, fingerprints=prints)
    assert judge_trace(example(), many)[0]["nugget_all"].fingerprint in chain


def test_only_what_is_wanted_is_asked() -> None:
    scores, judge, _ = judge_trace(example(), metrics=["answered"])
    assert list(scores) == ["answered"]
    assert len(judge.asked) == 1
    scores, judge, _ = judge_trace(example(), metrics=["nuggets"])
    assert set(scores) == NUGGETS
    assert judge.count("umbrela") == 5  # nuggets need grades


def test_every_pair_is_registered() -> None:
    tier = JudgeTier(FakeJudge(), JudgeSettings.model_validate({"k": [10, 5, 5]}))
    assert tier.tier == "judge"
    assert len(set(tier.pairs)) == len(tier.pairs) == 5 + 3 + 1 + 5 + 9
    for metric, scorer in tier.pairs:
        spec = metric_specs()[base_name(metric)]
        assert scorer in spec.scorers
        assert (":" in metric) == (spec.labels == ("k",))


def test_the_same_trace_asks_the_same_in_the_same_order() -> None:
    def prompts() -> list[str]:
        return [q.user for q in judge_trace(example())[1].asked]

    assert prompts() == prompts()


def test_a_cancelled_trace_leaves_no_call_behind() -> None:
    class Hanging(FakeJudge):
        open = 0

        async def ask(self, question: JudgeQuestion[Any], cost: ScoringCost) -> Any:
            self.open += 1
            try:
                await asyncio.sleep(3600)
            finally:
                self.open -= 1

    async def run() -> None:
        judge = Hanging()
        task = asyncio.create_task(
            JudgeTier(judge, JudgeSettings()).score(example(), ScoringCost())
        )
        await until_async(lambda: judge.open == 11)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert judge.open == 0

    asyncio.run(run())


@given(TRACE, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_whatever_the_trace_each_pair_ends_in_one_state(fields: dict[str, Any], rng: Any) -> None:
    def label(question: JudgeQuestion[Any]) -> Any:
        if family(question) == "nuggets-create":
            return {"nuggets": facts(rng.randint(0, 25))}
        properties = question.schema["properties"]
        return {name: rng.choice(spec["enum"]) for name, spec in properties.items()}

    names = ["umbrela", "citation-support", "attempted"]
    names += ["nuggets-create", "nuggets-importance", "nuggets-assign"]
    judge = FakeJudge(
        dict.fromkeys(names, label),
        fails=lambda q: "judge_error" if rng.random() < 0.2 else None,
    )
    one = trace(**fields)
    for score in judge_trace(one, judge, k=[1, 5])[0].values():
        spec = metric_specs()[base_name(score.metric)]
        assert (score.value is not None) == (score.state is ScoreState.SCORED)
        assert (score.reason is None) == (score.state is ScoreState.SCORED)
        assert score.probability == 1  # that of the draw comes later
        if score.value is not None:
            assert spec.high is not None
            assert spec.low <= score.value <= spec.high
        if score.reason == "judge_error":
            assert score.state is ScoreState.UNSCORED
