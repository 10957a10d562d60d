"""The rings hold exactly what was added, whatever the order, and only as long as a window does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.alerts.budget_rings import COARSE, FINE, BudgetRings, BudgetSums, ring_width
from ragmeter.alerts.error_budgets import ErrorBudgets, Objective
from ragmeter.core.arithmetic import WEIGHT_ONE, weight_units

SPANS = (300, 1800, 3600, 21600, 259200)
Added = tuple[int, int, bool]

events = st.lists(
    st.tuples(
        st.integers(0, 400_000),
        st.sampled_from([WEIGHT_ONE, weight_units(0.3), weight_units(0.05), weight_units(1e-9)]),
        st.booleans(),
    ),
    max_size=60,
)


def naive(added: list[Added], end: int, seconds: int) -> BudgetSums:
    width = ring_width(seconds)
    last = -(-end // width) * width
    inside = [(w, bad) for at, w, bad in added if last - seconds <= at < last]
    w, w2 = sum(x for x, _ in inside), sum(x * x for x, _ in inside)
    b, b2 = sum(x for x, bad in inside if bad), sum(x * x for x, bad in inside if bad)
    return BudgetSums(
        len(inside),
        w / WEIGHT_ONE,
        b / WEIGHT_ONE,
        w * w / w2 if w2 else 0,
        b * b / b2 if b2 else 0,
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(events, st.integers(0, 90_000), st.sampled_from([0, 120]))
def test_windows_are_the_sums_of_their_events(added: list[Added], more: int, lag: int) -> None:
    """In any order, late or not, with clock steps of any size in between."""
    rings, now = BudgetRings(SPANS, lag), 0
    for at, w, bad in added:
        now = max(now, at)
        rings.advance(now)
        if now - at <= 259_200:
            rings.add(at, w, bad)
    now += more
    rings.advance(now)
    newest, kept = 0, []
    for at, w, bad in added:  # what was too late for a ring when it came
        newest = max(newest, at)
        kept.append((at, w, bad, newest))
    for seconds in SPANS:
        reach = 21_600 if ring_width(seconds) == FINE else 259_200
        known = [(at, w, bad) for at, w, bad, then in kept if then - at <= reach - 600]
        unsure = [at for at, *_, then in kept if then - at > reach - 600]
        if any(now - lag - seconds <= at for at in unsure):
            continue  # at the very edge of a ring: which side counts is for the next test
        assert rings.sums(seconds) == naive(known, now - lag, seconds)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(events, st.integers(0, 60), st.sampled_from([0, 120]))
def test_a_restart_continues_bit_for_bit(added: list[Added], cut: int, lag: int) -> None:
    whole, broken, now = BudgetRings(SPANS, lag), BudgetRings(SPANS, lag), 0
    for number, (at, w, bad) in enumerate(added):
        now = max(now, at)
        if number == cut:
            rows = list(broken.rows())
            broken = BudgetRings(SPANS, lag)
            broken.advance(now)
            for row in rows:
                broken.restore(*row)
        for rings in (whole, broken):
            rings.advance(now)
            if now - at <= 259_200:
                rings.add(at, w, bad)
    assert list(whole.rows()) == list(broken.rows())
    assert [whole.sums(s) for s in SPANS] == [broken.sums(s) for s in SPANS]
    assert whole.newest == broken.newest


def test_every_change_of_a_bucket_is_dirty_and_so_is_its_end() -> None:
    rings = BudgetRings(SPANS)
    rings.advance(1000)
    rings.add(1000, WEIGHT_ONE, True)
    rings.fold()
    assert rings.dirty == {(FINE, 33), (COARSE, 3)}
    rings.dirty.clear()
    rings.advance(1000 + 22_000)
    assert rings.dirty == {(FINE, 33)}, "the fine ring has let it go"
    assert rings.cells(FINE, 33) is None
    assert rings.cells(COARSE, 3) == [1, 0, 0, WEIGHT_ONE, WEIGHT_ONE**2]
    rings.advance(10**9)
    assert rings.dirty == {(FINE, 33), (COARSE, 3)}
    assert list(rings.rows()) == []


def test_effective_counts_are_counts_for_equal_weights() -> None:
    rings = BudgetRings(SPANS)
    rings.advance(600)
    for number in range(20):
        rings.add(500, weight_units(0.05), number < 7)
    sums = rings.sums(300)
    assert (sums.samples, sums.effective_samples, sums.effective_errors) == (20, 20.0, 7.0)
    assert sums.ratio == 0.35


@pytest.mark.parametrize("seconds", [30, 45, 100, 21_630, 30_001, 259_500])
def test_windows_that_no_ring_keeps_are_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="between 1m and 6h"):
        ring_width(seconds)


def test_what_was_spent_and_what_went_before() -> None:
    budgets = ErrorBudgets([Objective("answers", 0.99)])
    day = 86_400
    begin = 20 * 3 * day
    for i in range(3 * 24 * 60):  # one a minute; 1 % bad, in the last hour half
        at = begin + i * 60 + 1
        bad = i % 100 == 0 or (i >= 71 * 60 and i % 2 == 0)
        budgets.add("bot", "answers", at, WEIGHT_ONE, bad)
    budgets.advance(begin + 3 * day)
    before = budgets.ratio_before("bot", "answers", 3600)
    assert before == pytest.approx(0.01, abs=0.0002)
    assert budgets.ratio_before("bot", "answers", 3 * day) is None
    # a tenth of the 30 days at rate 1, and in the hour 50 of the 1 % of a month's 43,200
    spent = budgets.spent_share("bot", "answers")
    assert spent == pytest.approx((43 + 30) / 432, rel=0.02)
    assert budgets.spent_share("bot", "nothing") is None
    assert budgets.ratio_before("nobody", "answers", 3600) is None


def test_a_young_service_has_not_spent_as_if_it_were_old() -> None:
    budgets = ErrorBudgets([Objective("answers", 0.99)])
    for i in range(60):
        budgets.add("bot", "answers", 600_000.0 + i * 60, WEIGHT_ONE, i % 2 == 0)
    # half of an hour's events is 50 hours' worth of the 720 hours that the budget is for
    assert budgets.spent_share("bot", "answers") == pytest.approx(50 / 720, rel=0.02)
