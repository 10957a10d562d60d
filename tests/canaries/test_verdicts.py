from __future__ import annotations

from typing import Any

import pytest
from ragmeter.canaries.suite import SuiteError
from ragmeter.canaries.verdicts import (
    CanaryVerdict,
    describe_thresholds,
    evaluate_canary,
    reject_idle_thresholds,
)
from ragmeter.core.score import Score, ScoreState
from ragmeter.scoring.scorer import Scorer

from tests.canaries.suites import suite
from tests.traces import make_trace

SCORER = Scorer(builtin=False, ks=[5])


def judged(answer: str, reference: dict[str, Any], **changes: Any) -> CanaryVerdict:
    fields = {name: changes.pop(name) for name in ("status", "error") if name in changes}
    common = changes.pop("common", {})
    one = suite({"id": "a", "query": "?", "reference": reference, **changes}, expect=common)
    trace = make_trace(1, answer=answer, reference=reference, **fields)
    return evaluate_canary(one, one.questions[0], trace, SCORER.score_reference(trace))


def test_what_every_canary_must_reach() -> None:
    checks = [{"name": "days", "patterns": ["14 days"]}, {"name": "x", "forbidden": ["soon"]}]
    assert judged("In 14 days.", {"checks": checks}).passed
    assert judged("In 14 days, soon.", {"checks": checks}).failed == [
        "fact_checks 0.5, wanted 1 (failed: x)"
    ]
    assert judged("It is 5.", {"calculation": {"result": 6}}).failed == ["calculation 0, wanted 1"]
    assert judged("Yes, at noon.", {"answerable": False}).failed == [
        "abstention_accuracy 0, wanted 1"
    ]
    assert judged("I don't know.", {"answerable": False}).passed
    # degrees have no threshold of their own
    assert judged("Nothing of it.", {"answer": "Fourteen long days"}).passed
    late = judged("", {"checks": checks}, status="timeout", error="no reply within 5 s")
    assert late.failed == ["timeout: no reply within 5 s"]


def test_thresholds() -> None:
    reference = {"answer": "Refunds take 14 days", "supports": [{"rel_path": "a.md"}]}
    assert judged("14 days", reference, expect={"number_match": 1}).passed
    assert judged("a week", reference, expect={"number_match": 0.5}).failed == [
        "number_match 0, wanted 0.5"
    ]
    # where lower is better it is the most that may be
    assert judged("x", reference, expect={"canary_seconds": 2}).passed
    assert judged("x", reference, expect={"canary_seconds": 1}).failed == [
        "canary_seconds 1.5, wanted 1"
    ]
    # what cannot be said is not reached: these passages name no document
    assert judged("x", reference, expect={"recall_any_at_k:5": 1}).failed == [
        "recall_any_at_k:5 could not be scored (no_anchor)"
    ]
    assert judged("x", reference, expect={"recall_any_at_k:3": 1}).failed == [
        "recall_any_at_k:3 is not measured"
    ]


def test_thresholds_of_the_suite_hold_where_they_apply() -> None:
    reference = {"answer": "no number"}
    assert judged("x", reference, common={"number_match": 1}).passed
    assert not judged("x", reference, expect={"number_match": 1}).passed
    assert not judged("x", {"answer": "14"}, common={"number_match": 1}).passed
    assert judged("x", reference, common={"number_match": 1}).outcomes == {
        "number_match": "does not apply"
    }
    # of the question's own
    both = {"common": {"number_match": 1}, "expect": {"number_match": 0}}
    assert judged("x", {"answer": "14"}, **both).passed


def test_a_threshold_without_a_value_is_not_met() -> None:
    reference = {"answer": "Refunds take 14 days", "similarity_failed": True}
    verdict = judged("Refunds take 14 days", reference, common={"answer_correctness": 0.8})
    assert verdict.failed == ["answer_correctness could not be scored (embedding_failed)"]
    assert verdict.outcomes == {"answer_correctness": "not measured"}
    # a judged metric that nobody scored
    verdict = judged("14 days", {"answer": "14 days"}, common={"faithfulness": 0.8})
    assert verdict.failed == ["faithfulness is not measured"]


def test_an_absurd_answer_misses_the_correctness_that_the_suite_asks_for() -> None:
    verdict = judged("Bananas.", {"answer": "In 14 days"}, common={"answer_correctness": 0.8})
    assert verdict.failed == ["answer_correctness 0.0667, wanted 0.8"]


def test_a_threshold_on_a_metric_of_a_judge() -> None:
    one = suite({"id": "a", "query": "?", "reference": {"answer": "x"}}, expect={"faithfulness": 1})
    trace = make_trace(1, answer="x", reference={"answer": "x"})

    def verdict(*scores: Score) -> CanaryVerdict:
        scored = [*SCORER.score_reference(trace), *scores]
        return evaluate_canary(one, one.questions[0], trace, scored)

    good, bad = (Score("faithfulness", "judge", ScoreState.SCORED, value) for value in (1.0, 0.5))
    assert verdict(good).passed
    assert verdict(bad).failed == ["faithfulness 0.5, wanted 1"]
    # nothing was claimed, though the question can be answered
    none = Score("faithfulness", "judge", ScoreState.NOT_APPLICABLE, reason="no_claims")
    assert verdict(none).failed == ["faithfulness does not apply (no_claims)"]


def test_thresholds_that_apply_to_no_question_are_refused() -> None:
    question = {"id": "a", "query": "?", "reference": {"answer": "x"}}
    fine = suite(question, expect={"answer_correctness": 0.8, "exact_match": 0})
    reject_idle_thresholds(fine, "s.yaml")
    idle = suite(question, expect={"fact_checks": 1, "precision_at_k:3": 0.5})
    with pytest.raises(SuiteError) as caught:
        reject_idle_thresholds(idle, "s.yaml")
    assert str(caught.value).splitlines() == [
        "s.yaml: expect: fact_checks applies to no question",
        "s.yaml: expect: precision_at_k:3 applies to no question",
    ]
    own = suite({**question, "expect": {"calculation": 1}})
    with pytest.raises(SuiteError, match="question a: expect: calculation does not apply"):
        reject_idle_thresholds(own, "s.yaml")
    placed = {"answer": "x", "supports": [{"rel_path": "a.md"}]}
    reject_idle_thresholds(
        suite({**question, "reference": placed}, expect={"precision_at_k:3": 0.5}), "s.yaml"
    )


def test_the_summary_counts_the_questions_that_a_threshold_applied_to() -> None:
    common = {"number_match": 0.5}
    one = suite({"id": "a", "query": "?", "reference": {"answer": "14"}}, expect=common)
    verdicts = [
        judged("14", {"answer": "14"}, common=common),
        judged("15", {"answer": "14"}, common=common),
        judged("15", {"answer": "no number"}, common=common),
        judged("", {"answer": "14"}, common=common, status="error"),
    ]
    assert describe_thresholds(one, verdicts) == [
        "number_match at least 0.5: met by 1 of 3; 1 missed; 1 not measured; does not apply to 1"
    ]
