"""Agreement of scorers with people, against figures computed by hand or another formula."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ragmeter.windows.people_agreement import (
    LabelledScores,
    _Pair,
    auroc_interval,
    cohen_kappa,
    compare_with_people,
    labelled_scores,
)


def pairs_of(*rows: tuple[float, bool], weight: float = 1.0) -> list[_Pair]:
    return [_Pair(value, yes, weight) for value, yes in rows]


def test_auroc_counts_pairs_and_ties_half() -> None:
    pairs = pairs_of((0.9, True), (0.5, True), (0.5, False), (0.1, False))
    value, lower, upper = auroc_interval(pairs)
    assert value == pytest.approx(3.5 / 4)
    assert 0 <= lower < value < upper <= 1


def test_a_label_counts_for_what_it_stands_for() -> None:
    once = pairs_of((0.9, True), (0.4, True), (0.5, False), (0.1, False))
    weighed = [one._replace(weight=1.0 + 2 * (one.value == 0.4)) for one in once]
    copied = [*once, once[1], once[1]]
    assert auroc_interval(weighed)[0] == pytest.approx(auroc_interval(copied)[0])
    reported = [one._replace(value=float(one.value > 0.45)) for one in weighed]
    again = [one._replace(value=float(one.value > 0.45)) for one in copied]
    assert cohen_kappa(reported)[0] == pytest.approx(cohen_kappa(again)[0])
    # but no label makes itself more certain
    whole, single = auroc_interval(copied), auroc_interval(weighed)
    assert single[2] - single[1] > whole[2] - whole[1]


def test_intervals_cover_the_truth() -> None:
    # two normal distributions one standard deviation apart: the AUROC is Phi(1 / sqrt 2) = .760;
    # at a cut of .5 .691 of either kind are right, and with 20 of 30 yes kappa is .365; the mean
    # of the values is that of the labels
    rng = random.Random(6)
    auroc = 0
    kappa = 0
    bias = 0
    for _ in range(400):
        drawn = [rng.random() < 2 / 3 for _ in range(30)]
        rows = [(rng.gauss(float(yes), 1), yes) for yes in drawn]
        _, lower, upper = auroc_interval(pairs_of(*rows))
        auroc += lower <= 0.760 <= upper
        _, lower, upper = cohen_kappa(pairs_of(*((float(v >= 0.5), yes) for v, yes in rows)))
        kappa += lower <= 0.3624 <= upper
        (row,) = compare_with_people(
            LabelledScores({"grounded": yes}, {"grounding": {"mini": v}}) for v, yes in rows
        )
        bias += row.bias[1] <= 0 <= row.bias[2]
    assert auroc / 400 > 0.91
    assert kappa / 400 > 0.93
    assert bias / 400 > 0.93


def test_labels_that_all_agree_leave_room_for_a_bias() -> None:
    (row,) = compare_with_people(
        LabelledScores({"grounded": n < 25}, {"grounding": {"mini": float(n < 25)}})
        for n in range(30)
    )
    assert row.bias[0] == 0
    # three in a hundred may be labelled otherwise, and in thirty none is seen
    assert row.bias[1] < -0.03
    assert row.bias[2] > 0.03


def test_kappa() -> None:
    rows = [(1.0, True)] * 20 + [(1.0, False)] * 5 + [(0.0, True)] * 10 + [(0.0, False)] * 15
    value, lower, upper = cohen_kappa(pairs_of(*rows))
    assert value == pytest.approx(0.4)  # the example of Cohen's kappa in Wikipedia
    assert 0.1 < lower < 0.2
    assert 0.6 < upper < 0.7
    assert cohen_kappa(pairs_of(*[(1.0, True)] * 3)) == (0, -1, 1)


def test_labels_of_a_scored_trace() -> None:
    results: list[dict[str, Any]] = [
        {"metric": "grounding", "scorer": "mini", "state": "scored", "value": 0.3},
        {"metric": "grounding", "scorer": "people", "state": "scored", "value": 0.0},
        {"metric": "answered", "scorer": "people", "state": "unscored", "reason": "cannot_tell"},
        {"metric": "context_relevancy", "scorer": "people", "state": "scored", "value": 1.0},
    ]
    assert labelled_scores([{**one, "probability": 0.1} for one in results]) == LabelledScores(
        {"grounded": False, "relevant": True}, {"grounding": {"mini": 0.3}}, 10.0
    )
    assert labelled_scores(results[:1]) is None


def test_scorers_that_measure_the_question_are_compared() -> None:
    labelled = [
        LabelledScores(
            {"grounded": at >= 6, "answered": "cannot_tell", "relevant": at % 2 == 0},
            {
                "grounding": {"builtin": at / 12, "mini": 1 - at / 12},
                "faithfulness": {"judge": float(at >= 6)},
                "relevance": {"builtin": 3.0 * (at % 2 == 0)},
                "answered": {"builtin": 1.0},
            },
        )
        for at in range(12)
    ]
    rows = {(row.label, row.metric, row.scorer): row for row in compare_with_people(labelled)}
    assert list(rows) == [
        ("grounded", "faithfulness", "judge"),
        ("grounded", "grounding", "builtin"),
        ("grounded", "grounding", "mini"),
        ("relevant", "relevance", "builtin"),
    ]
    good = rows["grounded", "grounding", "builtin"]
    assert good.auroc is not None
    assert good.auroc[0] == 1
    assert (good.n, good.yes) == (12, 0.5)
    assert good.threshold == pytest.approx(5.5 / 12)
    assert good.kappa[0] == 1
    assert good.kappa[1] > 0.4
    assert good.bias[0] == pytest.approx(5.5 / 12 - 0.5)
    bad = rows["grounded", "grounding", "mini"]
    assert bad.auroc is not None
    assert bad.auroc[0] == 0
    assert bad.kappa[0] < 0
    assert bad.threshold is None
    perfect = rows["grounded", "faithfulness", "judge"]
    assert perfect.calibration == pytest.approx(0.0)
    assert rows["relevant", "relevance", "builtin"].bias[0] == 0, "as a part of the range"


def test_no_threshold_from_a_handful() -> None:
    labelled = [
        LabelledScores({"grounded": at > 3}, {"grounding": {"builtin": at / 10}})
        for at in range(10)
    ]
    (row,) = compare_with_people(labelled)
    assert (row.auroc, row.threshold) == (None, None)
    assert row.cells[5::2] == ["–", "–"]
