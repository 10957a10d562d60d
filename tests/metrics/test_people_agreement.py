"""Agreement of scorers with people, against figures computed by hand or another formula."""

from __future__ import annotations

import random

import pytest

from ragmeter.metrics.people_agreement import (
    LabelledScores,
    auroc_interval,
    cohen_kappa,
    compare_with_people,
)


def test_auroc_counts_pairs_and_ties_half() -> None:
    pairs = [(0.9, True), (0.5, True), (0.5, False), (0.1, False)]
    value, lower, upper = auroc_interval(pairs)
    assert value == pytest.approx(3.5 / 4)
    assert 0 <= lower < value < upper <= 1


def test_auroc_interval_covers_the_truth() -> None:
    # two normal distributions one standard deviation apart: the AUROC is Phi(1 / sqrt 2) = .760
    rng = random.Random(6)
    held = 0
    for _ in range(400):
        pairs = [(rng.gauss(float(yes), 1), yes) for yes in [True] * 20 + [False] * 10]
        _, lower, upper = auroc_interval(pairs)
        held += lower <= 0.760 <= upper
    assert held / 400 > 0.91


def test_kappa() -> None:
    rows = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert cohen_kappa(rows) == pytest.approx(0.4)  # the example of Cohen's kappa in Wikipedia
    assert cohen_kappa([(True, True)] * 3) == 0


def test_scorers_that_measure_the_question_are_compared() -> None:
    labelled: list[LabelledScores] = [
        (
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
    assert (good.n, good.yes, good.accuracy) == (12, 0.5, 1)
    assert good.threshold == pytest.approx(5.5 / 12)
    assert good.kappa == 1
    assert good.mean == pytest.approx(5.5 / 12)
    bad = rows["grounded", "grounding", "mini"]
    assert bad.auroc is not None
    assert bad.auroc[0] == 0
    assert bad.kappa < 0
    perfect = rows["grounded", "faithfulness", "judge"]
    assert perfect.calibration == pytest.approx(0.0)
    assert rows["relevant", "relevance", "builtin"].mean == 0.5, "as a part of the range"


def test_no_threshold_from_a_handful() -> None:
    labelled = [({"grounded": at > 3}, {"grounding": {"builtin": at / 10}}) for at in range(10)]
    (row,) = compare_with_people(labelled)
    assert (row.auroc, row.threshold) == (None, None)
