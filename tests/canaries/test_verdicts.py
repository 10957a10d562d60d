from __future__ import annotations

from typing import Any

from ragmeter.canaries.verdicts import CanaryVerdict, evaluate_canary
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
    # of the question's own
    both = {"common": {"number_match": 1}, "expect": {"number_match": 0}}
    assert judged("x", {"answer": "14"}, **both).passed
