from __future__ import annotations

from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.judge_agreement import (
    ComparableVerdicts,
    compare_verdicts,
    count_by_kind,
    explain_missing_verdict,
    extract_verdicts,
    verdicts_differ,
)
from ragmeter.metrics.registry import metric_families


def test_verdicts_come_from_the_details_of_the_scores() -> None:
    scores = [
        Score(
            "relevance",
            "umbrela",
            ScoreState.UNSCORED,
            reason="judge_timeout",
            detail={"grades": [3, None, 0], "missing": {"judge_timeout": [1]}},
        ),
        Score("answered", "judge", ScoreState.SCORED, 1.0, detail={"attempt": "partial"}),
        Score(
            "citation_precision",
            "judge",
            ScoreState.SCORED,
            0.5,
            detail={
                "pairs": [
                    {"sentence": 0, "passage_id": "a", "support": 1.0},
                    {"sentence": 1, "passage_id": "b", "support": 0.5},
                    {"sentence": None, "passage_id": "c", "support": 0.0},
                    {"sentence": 2, "passage_id": "d", "support": None, "reason": "too_long"},
                ]
            },
        ),
        Score("nugget_all", "autonuggetizer", ScoreState.SCORED, 1.0, detail={"nuggets": []}),
    ]
    assert extract_verdicts(scores) == {
        "grade:0": 3,
        "grade:2": 0,
        "attempt": "partial",
        "support:0:a": "full",
        "support:1:b": "partial",
        "support::c": "none",
    }
    assert extract_verdicts([Score("answered", "judge", ScoreState.SCORED, 0.0)]) == {}


def test_grades_differ_across_two_and_labels_where_they_are_not_the_same() -> None:
    assert not verdicts_differ("grade:0", 0, 1)
    assert not verdicts_differ("grade:0", 2, 3)
    assert verdicts_differ("grade:0", 1, 2)
    assert verdicts_differ("support:0:a", "full", "partial")
    assert not verdicts_differ("groundedness_grade", 1, 2)
    assert verdicts_differ("correctness_grade", 5, 3)
    one: ComparableVerdicts = {"grade:0": 3, "attempt": "none", "c": 1}
    other: ComparableVerdicts = {"grade:0": 1, "attempt": "none", "d": 0}
    differs = compare_verdicts(one, other)
    assert differs == {"grade:0": True, "attempt": False}
    assert count_by_kind(differs) == {"relevance": [1, 1], "answered": [1, 0]}


def test_a_missing_comparison_has_the_reason_of_the_failure() -> None:
    failed = Score("answered", "judge", ScoreState.UNSCORED, reason="judge_refused")
    none = Score("citation_f1", "judge", ScoreState.NOT_APPLICABLE, reason="no_answer")
    assert explain_missing_verdict([none, failed]) == (ScoreState.UNSCORED, "judge_refused")
    assert explain_missing_verdict([none]) == (ScoreState.NOT_APPLICABLE, "no_verdict")


def test_the_metrics_of_judges_are_shares() -> None:
    assert {(spec.low, spec.high, spec.tier) for spec in metric_families()["judge_agreement"]} == {
        (0.0, 1.0, "judge")
    }
    assert {spec.name: spec.good for spec in metric_families()["judge_agreement"]} == {
        "judge_disagreement": "lower",
        "judge_probe_agreement": "higher",
        "judge_probe_change": "lower",
    }
