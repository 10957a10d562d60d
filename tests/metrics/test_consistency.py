from __future__ import annotations

import math

import pytest

from agent.metrics.consistency import (
    MAX_ANSWERS,
    Spread,
    lexical,
    normalised_query,
    pairwise,
    spread,
)
from agent.metrics.results import Gap

FEW = Gap("too_few_answers", applies=False)


def test_spread_by_hand() -> None:
    # mean 0.6; deviations -0.2, 0, 0.2; variance 0.08 / 3
    found = spread([0.4, 0.6, 0.8])
    assert isinstance(found, Spread)
    assert found.mean == pytest.approx(0.6)
    assert found.variance == pytest.approx(0.08 / 3)
    assert found.variation == pytest.approx(math.sqrt(0.08 / 3) / 0.6)


def test_what_has_no_spread() -> None:
    assert spread([]) == FEW
    assert spread([0.5]) == Spread(0.5, FEW, FEW)
    assert spread([0.0, 0.0]) == Spread(0.0, 0.0, Gap("no_mean", applies=False))
    assert spread([0.25] * 3) == Spread(0.25, 0.0, 0.0)


def test_every_two_answers_are_compared() -> None:
    found = lexical(["Refunds take 14 days.", " refunds take 14 days", "No idea."])
    assert not isinstance(found, Gap)
    assert found == {name: [1.0, 0.0, 0.0] for name in ("rouge1", "rouge2", "rouge_l")}
    # 2 of 4 and 3 words in common, in the other order: 1 in sequence; bigrams: none
    found = lexical(["refunds take 14 days", "14 refunds soon"])
    assert not isinstance(found, Gap)
    assert found["rouge1"] == [pytest.approx(4 / 7)]
    assert found["rouge2"] == [0.0]
    assert found["rouge_l"] == [pytest.approx(2 / 7)]


def test_blank_answers_and_missing_bigrams_are_left_out() -> None:
    assert lexical(["Yes.", "  ", "..."]) == FEW
    found = lexical(["Yes.", "yes"])
    assert found == {"rouge1": [1.0], "rouge2": [], "rouge_l": [1.0]}
    assert spread([]) == FEW  # what comes of the empty list


def test_only_the_latest_answers_are_compared() -> None:
    found = lexical([*map(str, range(30)), *["the same"] * MAX_ANSWERS])
    assert not isinstance(found, Gap)
    assert found["rouge1"] == [1.0] * (MAX_ANSWERS * (MAX_ANSWERS - 1) // 2)


def test_a_similarity_is_asked_in_both_orders() -> None:
    lengths = {("a", "bb"): 0.2, ("bb", "a"): 0.4}
    assert pairwise(["a", "bb"], lambda one, two: lengths[one, two]) == [pytest.approx(0.3)]
    assert pairwise(["a"], lambda one, two: 1.0) == []


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("How do I reset it?", "  how do I\nRESET it ", True),
        ("ﬁle size", "file SIZE!", True),
        ("What is C?", "What is C++?", False),
        ("?", "?!", False),
        ("is it 1.5", "is it 15", False),
    ],
)
def test_the_normal_form_of_a_query(one: str, two: str, same: bool) -> None:
    assert (normalised_query(one) == normalised_query(two)) is same
