"""What a judge says where the reference cannot: was it declined, is it a right answer?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from ragmeter.app.settings import load_settings
from ragmeter.canaries.verdicts import evaluate_canary
from ragmeter.cli.main import app
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.canary.specs import relabel_canary_scores
from ragmeter.offline.scoring import OfflineScorer
from ragmeter.sampling.sampler import Sampler
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace
from typer.testing import CliRunner, Result
from werkzeug import Request, Response

from tests.canaries.suites import suite
from tests.scorers.judge.fakes import FakeJudge
from tests.tables import each_row
from tests.traces import make_trace

ABSTENTION = ("abstention_accuracy", "unanswerable_hallucination")
# the rules see no refusal in the first and one in the second
REFUSAL = "Salaries are a matter that our notes stay silent on."
ANSWER = "I don't know why people ask, but the salary is 90k."


def canary(answer: str, **changes: Any) -> Trace:
    return make_trace(1, answer=answer, reference={"answerable": False}, **changes)


def tier(label: str, fails: str | None = None, *, metrics: list[str] | None = None) -> JudgeTier:
    judge = FakeJudge({"attempted": label}, fails=lambda question: fails)
    names: Any = metrics or ["answered"]
    return JudgeTier(judge, JudgeSettings(base_url="http://judge", model="m", metrics=names))


def scored(trace: Trace, judge: JudgeTier) -> list[Score]:
    """What `ragmeter score` and `ragmeter canary run` say of a trace."""

    async def run() -> list[Score]:
        async with OfflineScorer(load_settings(environ={}), {"judge": judge}) as scorer:
            found = await scorer.score(trace)
            assert {(one.metric, one.scorer) for one in found.results} <= set(scorer.expected)
            return list(found.results)

    return asyncio.run(run())


def abstention(scores: list[Score]) -> dict[tuple[str, str], float | str | None]:
    return {
        (one.metric, one.scorer): one.reason if one.value is None else one.value
        for one in scores
        if one.metric in ABSTENTION
    }


@each_row(
    ("answer", "label", "accuracy"),
    [
        (REFUSAL, "none", 1.0),
        (ANSWER, "answered", 0.0),
        (REFUSAL + " Perhaps 90k.", "partial", 0.0),
        ("Keine Angabe dazu.", "none", 1.0),  # a language that the rules do not know
        ("", "answered", 1.0),  # nobody is asked about a blank answer
    ],
)
def test_the_label_of_the_judge_counts(answer: str, label: str, accuracy: float) -> None:
    found = scored(canary(answer), tier(label))
    assert abstention(found) == {
        ("abstention_accuracy", "reference"): "judged",
        ("unanswerable_hallucination", "reference"): "judged",
        ("abstention_accuracy", "canary/judge"): accuracy,
        ("unanswerable_hallucination", "canary/judge"): 1 - accuracy,
    }
    judged = {one.metric: one for one in found if one.scorer in ("judge", "canary/judge")}
    assert judged["answered"].value == judged["unanswerable_hallucination"].value
    assert {one.fingerprint for one in judged.values()} == {"f" * 12 if answer else None}
    questions = suite({"id": "a", "query": "?", "reference": {"answerable": False}})
    verdict = evaluate_canary(questions, questions.questions[0], canary(answer), found)
    assert verdict.passed == (accuracy == 1)


@pytest.mark.parametrize("abstained", [True, False])
def test_no_trace_says_that_it_did_not_answer_and_that_it_invented(abstained: bool) -> None:
    """Whatever the service says of itself, and whatever its text looks like to the rules."""
    for answer in (REFUSAL, ANSWER, "I don't know."):
        for label in ("answered", "partial", "none"):
            found = scored(canary(answer, abstained=abstained), tier(label))
            refused = any(
                (one.value == 0 and one.metric == "answered")
                or (one.value == 1 and one.metric == "abstention_accuracy")
                for one in found
            )
            invented = any(
                one.value == 1 and one.metric == "unanswerable_hallucination" for one in found
            )
            assert refused != invented


def test_without_a_label_the_rules_decide() -> None:
    by_rules = abstention(scored(canary("I don't know."), tier("none", "judge_timeout")))
    assert by_rules == {
        ("abstention_accuracy", "reference"): 1.0,
        ("unanswerable_hallucination", "reference"): 0.0,
        ("abstention_accuracy", "canary/judge"): "judge_timeout",
        ("unanswerable_hallucination", "canary/judge"): "judge_timeout",
    }
    # a judge that is asked for something else labels no attempt
    other = abstention(scored(canary("I don't know."), tier("none", metrics=["relevance"])))
    assert set(other) == {(metric, "reference") for metric in ABSTENTION}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reference": {"answer": "90k"}}, "answerable"),
        ({"reference": {"answerable": True}}, "answerable"),
        ({"status": "timeout"}, "timeout"),
    ],
)
def test_where_they_do_not_apply_they_do_not(changes: dict[str, Any], reason: str) -> None:
    found = abstention(
        scored(make_trace(1, **{"reference": {"answerable": False}, **changes}), tier("none"))
    )
    assert set(found.values()) == {reason}
    assert len(found) == 4


def live(judge: JudgeTier) -> Scorer:
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.5}})
    return Scorer(sampler=Sampler(settings.sampling), tiers={"judge": judge.pairs})


@pytest.mark.parametrize(("label", "accuracy"), [("none", 1.0), ("answered", 0.0)])
def test_a_live_canary_has_each_result_once(label: str, accuracy: float) -> None:
    judge = tier(label, metrics=["answered", "relevance"])
    scorer = live(judge)
    trace = canary(REFUSAL)
    drawn = scorer.score(trace)
    pairs = [(one.metric, one.scorer) for one in drawn.trace.results]
    assert {*pairs, *scorer.pending_pairs(drawn, "judge")} == set(scorer.canary_pairs)
    assert len(pairs) + len(scorer.pending_pairs(drawn, "judge")) == len(scorer.canary_pairs)
    from ragmeter.core.tiers import ScoringCost
    from ragmeter.scoring.slow_tiers import answered_pairs, score_live_tier

    results = asyncio.run(score_live_tier(judge, trace, ScoringCost()))
    assert {(one.metric, one.scorer) for one in results} == answered_pairs(judge, trace)
    assert answered_pairs(judge, trace) == set(scorer.pending_pairs(drawn, "judge"))
    whole = scorer.add_results(drawn, "judge", results).trace
    assert abstention(list(whole.results)) == {
        ("abstention_accuracy", "reference"): "judged",
        ("unanswerable_hallucination", "reference"): "judged",
        ("abstention_accuracy", "canary/judge"): accuracy,
        ("unanswerable_hallucination", "canary/judge"): 1 - accuracy,
    }


def test_the_budget_leaves_the_rules_in_place() -> None:
    settings = load_settings(environ={})
    judge = tier("none")

    class Poor(Sampler):
        def admits_canary(self, tier: Any) -> bool:
            return False

    scorer = Scorer(sampler=Poor(settings.sampling), tiers={"judge": judge.pairs})
    found = abstention(list(scorer.score(canary("I don't know.")).trace.results))
    assert found["abstention_accuracy", "reference"] == 1.0
    assert found["abstention_accuracy", "canary/judge"] == "budget"


def test_the_record_of_the_service_itself_has_nothing_to_be_judged_by() -> None:
    score = Score("answered", "judge", ScoreState.SCORED, 0.0)
    found = relabel_canary_scores(make_trace(1), [score])
    assert [(one.metric, one.reason) for one in found[1:]] == [
        (metric, "no_reference") for metric in ABSTENTION
    ]


def correctness(
    answer: str, reference: dict[str, Any], label: str = "support", fails: str | None = None
) -> tuple[float | str | None, int]:
    """The correctness of an answer, and how many calls it took."""
    judge = FakeJudge(
        {"nuggets-assign": label, "attempted": "answered"},
        fails=lambda question: fails if "nuggets" in question.prompt else None,
    )
    settings = JudgeSettings(base_url="http://judge", model="m", metrics=["answered"])
    trace = make_trace(1, query="May I?", answer=answer, reference=reference)
    found = scored(trace, JudgeTier(judge, settings))
    (score,) = [one for one in found if one.metric == "answer_correctness"]
    assert score.scorer == "reference"
    return score.reason if score.value is None else score.value, judge.count("nuggets-assign")


@pytest.mark.parametrize(
    ("label", "value"),
    # 0.6 facts + 0.4 (length + facts) / 2
    [("support", 1.0), ("partial_support", 0.6), ("not_support", 0.2)],
)
def test_a_right_answer_without_keywords_is_put_to_the_judge(label: str, value: float) -> None:
    assert correctness("Yes, no problem at all.", {"answer": "No."}, label) == pytest.approx(
        (value, 1)
    )
    assert correctness("Nein.", {"answer": ["No.", "Never ever"]}, label) == pytest.approx(
        (value, 1)
    )


def test_the_judge_is_asked_for_nothing_that_the_reference_says() -> None:
    for reference in (
        {"answer": "No refunds"},
        {"answer": "14"},
        {"answer": "No.", "facts": ["problem"]},
        {"answer": "No.", "checks": [{"name": "no", "patterns": ["no"]}]},
        {"answer": "No.", "keywords": ["problem"]},
        {"answer": "No.", "judged_facts": 0.5},
        {"facts": ["problem"]},
        {"answerable": False, "answer": "No."},
    ):
        assert correctness("Yes, no problem.", reference)[1] == 0, reference
    assert correctness(" ", {"answer": "No."}) == (0.0, 0)  # a blank answer states nothing


def test_a_judge_that_fails_leaves_no_number() -> None:
    assert correctness("No.", {"answer": "No."}, fails="judge_timeout") == ("judge_error", 1)
    assert correctness("No." * 9_000, {"answer": "No."}) == ("judge_error", 0)
    # another right answer needs no judge
    both = {"answer": ["No.", "Never ever"]}
    assert correctness("Never ever.", both, fails="judge_timeout") == (1.0, 1)


class Servers:
    """A service that declines in words that the rules do not know, and a judge of attempts."""

    def __init__(self, server: HTTPServer, label: str) -> None:
        self.service = server.url_for("/ask")
        self.judge = server.url_for("/v1")
        self.asked: list[Any] = []
        self._label = label
        server.expect_request("/ask").respond_with_json({"answer": REFUSAL, "passages": []})
        server.expect_request("/v1/chat/completions").respond_with_handler(self._judge)

    def _judge(self, request: Request) -> Response:
        body = request.get_json()
        self.asked.append(body)
        asks = json.dumps(body["response_format"])
        verdict = {"attempt": self._label} if "attempt" in asks else {"1": "not_support"}
        message = {"role": "assistant", "content": json.dumps(verdict)}
        reply = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
        return Response(json.dumps(reply), content_type="application/json")


def run(servers: Servers, suite: Path, out: Path) -> Result:
    settings = suite.with_name("settings.yaml")
    settings.write_text(json.dumps({"judge": {"base_url": servers.judge, "model": "m"}}))
    arguments = ["canary", "run", str(suite), "--endpoint", servers.service, "--once"]
    arguments += ["-c", str(settings), "-o", str(out), "--per-minute", "6000"]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(("label", "status"), [("none", 0), ("answered", 1)])
def test_a_round_asks_the_judge_about_what_should_be_declined(
    label: str, status: int, tmp_path: Path, httpserver: HTTPServer
) -> None:
    servers = Servers(httpserver, label)
    file = tmp_path / "suite.jsonl"
    questions = [
        {"query": "What do we earn?", "reference": {"answerable": False}},
        {"query": "How long?", "reference": {"answer": "14 days"}},
    ]
    lines = [{"service": "bot"}, *questions]
    file.write_text("\n".join(map(json.dumps, lines)))
    found = run(servers, file, tmp_path / "out.jsonl")
    assert found.exit_code == status, found.output
    assert len({json.dumps(one) for one in servers.asked}) == 1  # again after a broken connection


def test_a_round_asks_the_judge_about_right_answers_without_keywords(
    tmp_path: Path, httpserver: HTTPServer
) -> None:
    servers = Servers(httpserver, "answered")
    file, out = tmp_path / "suite.jsonl", tmp_path / "out.jsonl"
    questions = [
        {"query": "May I?", "reference": {"answer": "On no day"}},
        {"query": "How long?", "reference": {"answer": "Stay silent"}},
    ]
    lines = [{"service": "bot", "expect": {"answer_correctness": 0.5}}, *questions]
    file.write_text("\n".join(map(json.dumps, lines)))
    found = run(servers, file, out)
    assert found.exit_code == 1
    # by the label of the judge; the other question has keywords
    assert "answer_correctness 0.2, wanted 0.5" in found.output
    assert len({json.dumps(one) for one in servers.asked}) == 1  # again after a broken connection
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["reference"]["judged_facts"] == 0
    assert "judged_facts" not in second["reference"]
