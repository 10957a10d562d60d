from __future__ import annotations

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.claims import (
    JudgedClaim,
    answer_relevancy,
    faithfulness,
    groundedness,
)

from tests.metrics.peers import recorded


def claims(*labels: str) -> list[JudgedClaim]:
    """One claim for each text: `s` in it is supported, `r` relevant."""
    return [JudgedClaim(f"claim {n}", "s" in one, "r" in one) for n, one in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "faithful", "relevant"),
    [
        (("sr",), 1.0, 1.0),
        # "Product costs $100 and comes in 3 colors" on "Product costs $100": RAG Guardian's guide
        (("sr", "r"), 0.5, 1.0),
        (("s", "s", "r", "-"), 0.5, 0.25),
        (("-", "-", "-"), 0.0, 0.0),
    ],
)
def test_shares_of_claims(labels: tuple[str, ...], faithful: float, relevant: float) -> None:
    assert faithfulness(claims(*labels)) == faithful
    assert answer_relevancy(claims(*labels)) == relevant


def test_an_answer_that_claims_nothing_is_not_unfaithful_but_irrelevant() -> None:
    assert faithfulness([]) == NoScore("no_claims", applies=False)
    assert answer_relevancy([]) == 0.0


def test_share_of_facts_that_were_used() -> None:
    # founded 1990 (used), 500 employees, Warsaw: the example of RAG Guardian's guide
    assert groundedness([True, False, False]) == pytest.approx(1 / 3)
    assert groundedness([True]) == 1.0
    assert groundedness([False, False]) == 0.0
    assert groundedness([]) == NoScore("nothing_relevant", applies=False)


def test_formulas_are_those_of_ragas_and_deepeval() -> None:
    for case in recorded("verdicts"):
        found = [JudgedClaim("", bool(one), bool(one)) for one in case["verdicts"]]
        assert faithfulness(found) == pytest.approx(case["ragas"]["faithfulness"])
        assert answer_relevancy(found) == pytest.approx(case["deepeval"]["answer_relevancy"])
