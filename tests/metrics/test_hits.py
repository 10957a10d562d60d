from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.core.score import NoScore
from ragmeter.metrics.ranking import Hits, any_hit, hit_share, reciprocal_rank_at

from tests.metrics.peers import recorded

LOST, LONG = NoScore("not_labelled"), NoScore("too_long")
HOLED = st.lists(st.sampled_from([0.0, 1.0, LOST, LONG]), max_size=8)
FORMULAS = (hit_share, any_hit, reciprocal_rank_at)


def test_by_hand() -> None:
    hits = [0.0, 1.0, 0.0, 1.0]
    assert [hit_share(hits, k) for k in (1, 2, 4)] == [0.0, 0.5, 0.5]
    assert hit_share(hits, 5) == NoScore("too_few_passages", applies=False)
    assert [any_hit(hits, k) for k in (1, 2, 9)] == [0.0, 1.0, 1.0]
    assert [reciprocal_rank_at(hits, k) for k in (1, 2, 9)] == [0.0, 0.5, 0.5]
    assert reciprocal_rank_at([0.0, 0.0], 2) == 0.0


def test_the_same_as_trec_eval() -> None:
    for case in recorded("rankings"):
        hits = [float(g > 0) for g in case["grades"]]
        k = case["k"]
        theirs = case["trec_eval"]
        assert hit_share(hits, k) == pytest.approx(theirs["precision"])
        assert any_hit(hits, k) == theirs["success"]
        assert reciprocal_rank_at(hits, k) == pytest.approx(theirs["reciprocal_rank"])


def test_no_passages_are_no_zero() -> None:
    assert {formula([], 3) for formula in FORMULAS} == {NoScore("no_passages", applies=False)}


def test_a_gap_takes_only_what_it_could_change() -> None:
    assert hit_share([1.0, LOST], 1) == 1.0
    assert hit_share([1.0, LOST], 2) == LOST
    assert any_hit([LOST, 1.0], 2) == 1.0
    assert any_hit([0.0, LOST], 2) == LOST
    assert any_hit([0.0, LOST], 1) == 0.0
    assert reciprocal_rank_at([0.0, 1.0, LOST], 3) == 0.5
    assert reciprocal_rank_at([LOST, 1.0], 2) == LOST
    assert reciprocal_rank_at([0.0, LOST], 2) == LOST
    assert reciprocal_rank_at([0.0, LOST], 1) == 0.0


@given(HOLED, st.integers(1, 9), st.data())
def test_what_stands_beside_a_gap_is_what_it_would_have_been(
    holed: Hits, k: int, data: st.DataObject
) -> None:
    whole = [data.draw(st.sampled_from([0.0, 1.0])) if isinstance(h, NoScore) else h for h in holed]
    for formula in FORMULAS:
        before, after = formula(holed, k), formula(whole, k)
        if isinstance(before, NoScore):
            # a gap of its own is from a passage that is not known, all others are by nature
            assert before in (LOST, LONG) or before == after
        else:
            assert before == after
