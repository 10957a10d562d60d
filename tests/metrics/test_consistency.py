from __future__ import annotations

import math

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.consistency import (
    AnswerConsistency,
    SimilaritySpread,
    answer_consistency,
    similarity_spread,
)

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


def means(found: AnswerConsistency | None) -> dict[str, float | None]:
    assert found is not None
    return {name: fields["f"]["mean"] for name, fields in found.overlaps.items()}


def test_every_two_answers_are_compared() -> None:
    found = answer_consistency(
        [["Refunds take 14 days.", " refunds take 14 days", "No idea."], ["Asked once."]]
    )
    assert found is not None
    assert (found.questions, found.answers) == (1, 3)
    assert means(found) == {name: pytest.approx(1 / 3) for name in ("rouge1", "rouge2", "rouge_l")}
    # 2 of 4 and 3 words in common, in the other order: 1 in sequence; bigrams: none
    found = answer_consistency([["refunds take 14 days", "14 refunds soon"]])
    assert means(found) == {
        "rouge1": pytest.approx(4 / 7),
        "rouge2": 0.0,
        "rouge_l": pytest.approx(2 / 7),
    }


def test_blank_answers_and_missing_bigrams_are_left_out() -> None:
    assert answer_consistency([["Yes.", "  ", "..."]]) is None
    assert means(answer_consistency([["Yes.", "yes", "..."]])) == {"rouge1": 1.0, "rouge_l": 1.0}
