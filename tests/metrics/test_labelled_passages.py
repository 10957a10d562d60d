"""By hand, by the example of pragmata's own tests, and by what trec_eval and scikit-learn give."""

from __future__ import annotations

import math

import pytest
from ragmeter.core.feedback import PassageLabels
from ragmeter.core.score import NoScore
from ragmeter.metrics.labelled import (
    RankedLabels,
    label_grades,
    labelled_passage_metrics,
    score_passage_labels,
)
from ragmeter.metrics.registry import metric_families, metric_specs

from tests.metrics.peers import recorded

NOT_LABELLED = NoScore("not_labelled")


def labelled(*rows: str) -> RankedLabels:
    """Of each passage the letters of its labels that are yes: t, s, m; "?" is not labelled."""
    return [
        None
        if row == "?"
        else PassageLabels(
            topically_relevant="t" in row or "s" in row,
            evidence_sufficient="s" in row,
            misleading="m" in row,
        )
        for row in rows
    ]


def scores(rows: RankedLabels, k: int) -> dict[str, float | NoScore]:
    return {
        name.partition(":")[0]: value for name, value in score_passage_labels(rows, [k]).items()
    }


def test_the_example_of_pragmata() -> None:
    # tests of pragmata.core.eval.grouping: three chunks of a query, two of another
    first = scores(labelled("s", "t", ""), 3)
    assert first == {
        "topical_precision_at_k": pytest.approx(2 / 3),
        "sufficiency_hit_at_k": 1.0,
        "sufficiency_rate_at_k": pytest.approx(1 / 3),
        "misleading_context_rate_at_k": 0.0,
        "reciprocal_rank_at_k": 1.0,
        "ndcg_at_k": 1.0,
    }
    second = scores(labelled("m", "tm"), 2)
    assert second == {
        "topical_precision_at_k": 0.5,
        "sufficiency_hit_at_k": 0.0,
        "sufficiency_rate_at_k": 0.0,
        "misleading_context_rate_at_k": 1.0,
        "reciprocal_rank_at_k": 0.5,
        "ndcg_at_k": pytest.approx(1 / math.log2(3)),
    }


def test_ndcg_by_hand() -> None:
    # grades 1, 0, 2: gains 1, 0, 3; the best order is 3, 1, 0
    found = scores(labelled("t", "", "s"), 3)["ndcg_at_k"]
    assert found == pytest.approx((1 + 3 / 2) / (3 + 1 / math.log2(3)))
    # cut at 1: gain 1 where 3 could have stood
    assert scores(labelled("t", "", "s"), 1)["ndcg_at_k"] == pytest.approx(1 / 3)


def test_ndcg_is_that_of_trec_eval_and_of_scikit_learn() -> None:
    rows = {0: "", 1: "t", 2: "s"}
    for case in recorded("rankings"):
        labels = labelled(*(rows[grade] for grade in case["grades"]))
        assert label_grades(labels) == case["grades"]
        found = scores(labels, case["k"])["ndcg_at_k"]
        assert found == pytest.approx(case["trec_eval"]["ndcg"], abs=1e-9)
        assert found == pytest.approx(case["sklearn"]["ndcg"], abs=1e-9)


def test_what_has_no_value_is_no_zero() -> None:
    nothing = scores(labelled("", ""), 2)
    assert nothing["ndcg_at_k"] == 0.0
    assert nothing["topical_precision_at_k"] == nothing["reciprocal_rank_at_k"] == 0.0
    few = scores(labelled("s"), 3)
    assert few["sufficiency_rate_at_k"] == NoScore("too_few_passages", applies=False)
    assert few["sufficiency_hit_at_k"] == few["reciprocal_rank_at_k"] == 1.0
    assert set(score_passage_labels([], [1, 5]).values()) == {NoScore("no_passages", applies=False)}


def test_a_passage_that_nobody_labelled_takes_what_it_could_change() -> None:
    found = scores(labelled("t", "s", "?"), 2)
    assert found["topical_precision_at_k"] == 1.0
    assert found["ndcg_at_k"] == NOT_LABELLED  # it might belong at the top
    found = scores(labelled("?", "s"), 2)
    assert found["sufficiency_hit_at_k"] == 1.0
    assert found["reciprocal_rank_at_k"] == found["misleading_context_rate_at_k"] == NOT_LABELLED


def test_a_label_that_is_missing_takes_its_own_metrics() -> None:
    topical = [PassageLabels(topically_relevant=True), PassageLabels(topically_relevant=False)]
    found = scores(topical, 2)
    assert found["topical_precision_at_k"] == 0.5
    assert found["sufficiency_hit_at_k"] == NOT_LABELLED
    # the first may be sufficient; the second can't be, for it is off the topic
    assert label_grades(topical) == [NOT_LABELLED, 0.0]
    assert label_grades([PassageLabels(evidence_sufficient=False)]) == [NOT_LABELLED]
    assert label_grades([PassageLabels(evidence_sufficient=True)]) == [2.0]


def test_every_metric_has_a_spec() -> None:
    declared = [spec.name for spec in metric_families()["labelled_passages"]]
    assert labelled_passage_metrics([3]) == [f"{name}:3" for name in declared]
    assert list(score_passage_labels(labelled("t"), [1, 3])) == labelled_passage_metrics([1, 3])
    assert "ndcg_at_k" in metric_specs()
    assert {
        spec.name: spec.good
        for spec in metric_families()["labelled_passages"]
        if spec.good == "lower"
    } == {"misleading_context_rate_at_k": "lower"}
