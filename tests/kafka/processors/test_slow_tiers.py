"""The slow tiers in line, with a judge that is made up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.counters import Counters
from ragmeter.core.label_bounds import MAX_LABEL_CHARS
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_score, encode_score
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.scorers.judge.second_opinion import DISAGREEMENT_METRIC, SecondOpinion
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.questions import JudgeQuestion, JudgeVerdict
from ragmeter.scoring.inline_tiers import InlineTiers
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

from tests.kafka.settings import settings_of
from tests.kafka.state.partition import apply
from tests.scorers.judge.fakes import FakeJudge
from tests.traces import START, make_trace
from tests.waiting import PATIENCE

T = TypeVar("T")

ANSWERED = ("answered", "judge")
JUDGE: dict[str, Any] = {
    "base_url": "http://127.0.0.1:9/v1",
    "model": "m",
    "metrics": ["answered"],
    "concurrency": 2,
    "second": {"share": 1.0},
    "probes": {"enabled": False},
}


async def score_trace(tiers: InlineTiers, trace: Trace, timestamp: float) -> ScoredTrace:
    return await tiers.finish(trace, tiers.draw(tiers.scorer.score_alone(trace, timestamp)))


class Fake:
    """A tier scorer that answers after `seconds`."""

    tier: Tier = "judge"

    def __init__(self, pairs: Sequence[MetricScorer], seconds: float = 0.0) -> None:
        self.pairs = pairs
        self.seconds = seconds
        self.asked: list[Trace] = []

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        self.asked.append(trace)
        cost.requests += 1
        await asyncio.sleep(self.seconds)
        detail = {"attempt": "answered"}
        return [Score(*pair, ScoreState.SCORED, 1.0, detail=detail) for pair in self.pairs]


def in_line(
    work: Callable[[InlineTiers], Awaitable[Any]],
    fake: Any = None,
    *,
    deadline: float = PATIENCE,
    **tree: Any,
) -> Any:
    async def go() -> Any:
        judge = {**JUDGE, **tree.pop("judge", {})}
        settings = settings_of(judge=judge, sampling={"judge": 1.0}, **tree)
        async with InlineTiers(settings, Counters(), deadline=deadline) as tiers:
            tiers._sampler.paced = False  # every trace is drawn
            if fake is not None:
                tiers.tier_scorers["judge"] = fake
            return await work(tiers)

    return asyncio.run(go())


def result(scored: ScoredTrace, pair: MetricScorer = ANSWERED) -> Score:
    (score,) = [s for s in scored.results if (s.metric, s.scorer) == pair]
    return score


def test_the_second_judge_is_asked_on_workers_too() -> None:
    async def expected(tiers: InlineTiers) -> list[MetricScorer]:
        return tiers.scorer.pairs

    assert (DISAGREEMENT_METRIC, "judge") in in_line(expected)


def test_a_second_judge_that_hangs_does_not_cost_the_first_ones_results() -> None:
    class Hanging(FakeJudge):
        async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
            await asyncio.sleep(10 * PATIENCE)
            return await super().ask(question, cost)

    settings = JudgeSettings.model_validate({"metrics": ["answered"]})
    first, second = (JudgeTier(judge, settings) for judge in (FakeJudge(), Hanging()))
    fake = SecondOpinion(first, second, 1.0, "salt")
    found = in_line(lambda tiers: score_trace(tiers, make_trace(), 0.0), fake, deadline=2.0)
    assert result(found).value == 1.0
    assert result(found, (DISAGREEMENT_METRIC, "judge")).reason == "judge_timeout"


def test_a_judge_that_hangs_is_cut_off_at_the_deadline() -> None:
    fake = Fake([ANSWERED], 60)
    found = in_line(lambda tiers: score_trace(tiers, make_trace(), 0.0), fake, deadline=0.2)
    assert result(found).reason == "timeout"


def test_hidden_texts_are_no_matter_for_the_judge() -> None:
    """As in the embedded agent: the reason of the trace, and not what the judge makes of it."""
    fake = Fake([ANSWERED])
    trace = make_trace(query=None, missing={"query": "redaction_failed"})
    in_line(lambda tiers: score_trace(tiers, trace, 0.0), fake)
    assert fake.asked[0].query is None
    trace = make_trace(query="How do I [cut", missing={"query": "truncated"})
    in_line(lambda tiers: score_trace(tiers, trace, 0.0), fake)
    assert fake.asked[1].query is None


def test_what_waits_for_a_place_lowers_what_is_drawn() -> None:
    async def work(tiers: InlineTiers) -> tuple[float, float]:
        waiting = [asyncio.create_task(score_trace(tiers, make_trace(n), 0.0)) for n in range(60)]
        await asyncio.sleep(0.05)
        crowded = tiers._controllers["judge"]._room
        await asyncio.gather(*waiting)
        return crowded, tiers._controllers["judge"]._room

    crowded, idle = in_line(
        work, Fake([ANSWERED], 0.02), kafka={"in_flight": 64}, judge={"concurrency": 50}
    )
    assert idle == 1.0
    crowded, _ = in_line(
        work, Fake([ANSWERED], 0.02), kafka={"in_flight": 64}, judge={"concurrency": 1}
    )
    assert crowded < 0.5


def test_the_budget_follows_the_part_of_the_traces_that_is_read() -> None:
    async def work(tiers: InlineTiers) -> dict[str, tuple[float, float]]:
        for share in (3.0 / 12, 0.0):  # the group forms anew
            tiers.set_share(share)
        return tiers._controllers["judge"].balances()

    budget = {"requests_per_minute": 120}
    standing = in_line(work, Fake([ANSWERED]), judge={"budget": budget})
    assert standing["requests"][0] == 0.5  # a second, of two


def test_the_scale_is_shown_for_a_bounded_number_of_services() -> None:
    async def work(tiers: InlineTiers) -> list[Any]:
        tiers._sampler.paced = True
        for n in range(5):
            await score_trace(tiers, make_trace(n, service=f"s{n}\n" + "x" * 300), 0.0)
        return list(tiers.gauges())

    gauges = in_line(work, Fake([ANSWERED]), limits={"services": 2})
    names = [dict(labels)["service"] for name, labels, _ in gauges if name.endswith("_scale")]
    assert len(names) == 3
    assert "__other__" in names
    assert max(map(len, names)) <= MAX_LABEL_CHARS


def test_where_canaries_have_no_part_of_the_budget_no_judge_is_asked() -> None:
    fake = Fake([ANSWERED])
    canary = make_trace(reference={"answer": "Click Forgot password."})
    judge = {"k": [3], "budget": {"canaries": 0}}
    found = in_line(lambda tiers: score_trace(tiers, canary, 0.0), fake, judge=judge)
    assert fake.asked == []
    assert found.canary
    assert {score.scorer for score in found.results} == {"reference"}
    assert "recall_any_at_k:3" in {score.metric for score in found.results}


GOLD = {"reference": {"answer": "Click Forgot password.", "facts": ["Forgot password"]}}


def test_a_canary_is_judged_and_counted_as_the_embedded_agent_counts_it() -> None:
    fake = Fake([ANSWERED])

    async def work(tiers: InlineTiers) -> tuple[list[ScoreRecord], list[MetricScorer]]:
        traces = [make_trace(1, trace_id="c", **GOLD), make_trace(2)]
        found = [await score_trace(tiers, one, one.timestamp.timestamp()) for one in traces]
        sent = [ScoreRecord(one, SourceOffset(0, n)) for n, one in enumerate(found)]
        return [decode_score(encode_score(one)) for one in sent], tiers.scorer.pairs

    (canary, plain), expected = in_line(work, fake)
    assert [trace.trace_id for trace in fake.asked] == ["c", "t2"]
    state = PartitionState(
        settings_of(judge=JUDGE),
        [],
        expected,
        dedupe=3600,
        clock=lambda: START,
        monotonic=lambda: 0.0,
    )
    apply(state, [canary, plain])
    counted = dict(state.aggregator.counters.items())
    assert not [name for name, _ in counted if name == "ragmeter_unexpected_results_total"]
    for scorer in ("judge", "canary/judge"):
        found = state.aggregator.windows.states("bot", "", "answered", scorer, "1h")
        assert {name: number for name, number in found.items() if number} == {"scored": 1}
    mismatch: dict[Any, float] = {}
    for (name, labels), value in counted.items():
        sign = {"ragmeter_seen_total": 1, "ragmeter_results_total": -1}.get(name, 0)
        key = tuple(pair for pair in labels if pair[0] in ("metric", "scorer"))
        mismatch[key] = mismatch.get(key, 0.0) + sign * value
    assert set(mismatch.values()) == {0.0}
    embedded = Scorer().score(make_trace(1, trace_id="c", **GOLD)).trace.results
    assert [one.to_dict() for one in canary.scored.results[: len(embedded)]] == [
        one.to_dict() for one in embedded
    ]


def test_canaries_beyond_their_part_of_the_budget_are_not_asked_about() -> None:
    fake = Fake([ANSWERED])

    async def work(tiers: InlineTiers) -> list[Score]:
        tiers._sampler.paced = True
        tiers._sampler._clock = lambda: START
        found = [await score_trace(tiers, make_trace(n, **GOLD), START) for n in range(20)]
        return [result(one, ("answered", "canary/judge")) for one in found]

    # 15 minutes of 0.1 of 4 calls a minute are 6, at one call each once that is known
    scores = in_line(work, fake, judge={"budget": {"requests_per_minute": 4}})
    assert len(fake.asked) == 6
    assert Counter((one.state, one.reason) for one in scores) == {
        (ScoreState.SCORED, None): 6,
        (ScoreState.UNSCORED, "budget"): 14,
    }
