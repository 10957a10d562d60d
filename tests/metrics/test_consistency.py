from __future__ import annotations

import math

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.consistency import (
    SimilaritySpread,
    normalise_query,
    similarity_spread,
)

from tests.metrics.help import lexical_similarities

FEW = NoScore("too_few_answers", applies=False)


def test_spread_by_hand() -> None:
    # mean 0.6; deviations -0.2, 0, 0.2; variance 0.08 / 3
    found = similarity_spread([0.4, 0.6, 0.8])
    assert isinstance(found, SimilaritySpread)
    assert found.mean == pytest.approx(0.6)
    assert found.variance == pytest.approx(0.08 / 3)
    assert found.variation == pytest.approx(math.sqrt(0.08 / 3) / 0.6)


def test_what_has_no_spread() -> None:
    assert similarity_spread([]) == FEW
    assert similarity_spread([0.5]) == SimilaritySpread(0.5, FEW, FEW)
    assert similarity_spread([0.0, 0.0]) == SimilaritySpread(
        0.0, 0.0, NoScore("no_mean", applies=False)
    )
    assert similarity_spread([0.25] * 3) == SimilaritySpread(0.25, 0.0, 0.0)


def test_every_two_answers_are_compared() -> None:
    found = lexical_similarities(["Refunds take 14 days.", " refunds take 14 days", "No idea."])
    assert not isinstance(found, NoScore)
    assert found == {name: [1.0, 0.0, 0.0] for name in ("rouge1", "rouge2", "rouge_l")}
    # 2 of 4 and 3 words in common, in the other order: 1 in sequence; bigrams: none
    found = lexical_similarities(["refunds take 14 days", "14 refunds soon"])
    assert not isinstance(found, NoScore)
    assert found["rouge1"] == [pytest.approx(4 / 7)]
    assert found["rouge2"] == [0.0]
    assert found["rouge_l"] == [pytest.approx(2 / 7)]


def test_blank_answers_and_missing_bigrams_are_left_out() -> None:
    assert lexical_similarities(["Yes.", "  ", "..."]) == FEW
    found = lexical_similarities(["Yes.", "yes"])
    assert found == {"rouge1": [1.0], "rouge2": [], "rouge_l": [1.0]}
    assert similarity_spread([]) == FEW  # what comes of the empty list


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
    assert (normalise_query(one) == normalise_query(two)) is same
