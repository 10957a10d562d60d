from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from ragmeter.scorers.llm.exchange import RetryBudget


def test_the_floor_lets_a_client_with_few_calls_retry() -> None:
    budget = RetryBudget(share=0.1, floor=3)
    assert [budget.allows(0.0) for _ in range(4)] == [True, True, True, False]


def test_the_share_is_of_the_calls() -> None:
    budget = RetryBudget(share=0.1, floor=0)
    for _ in range(100):
        budget.call(0.0)
    assert sum(budget.allows(1.0) for _ in range(50)) == 10


def test_calls_and_retries_are_forgotten_after_two_minutes() -> None:
    budget = RetryBudget(share=0.1, floor=1)
    for _ in range(100):
        budget.call(0.0)
    assert sum(budget.allows(0.0) for _ in range(50)) == 11
    assert not budget.allows(100.0)
    assert budget.allows(200.0)
    assert not budget.allows(200.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=300))
def test_never_more_than_share_and_floor_in_any_two_minutes(
    steps: list[tuple[float, bool]],
) -> None:
    budget = RetryBudget(share=0.1, floor=2)
    now = 0.0
    calls: list[float] = []
    extras: list[float] = []
    for pause, is_call in steps:
        now += pause
        if is_call:
            budget.call(now)
            calls.append(now)
        elif budget.allows(now):
            extras.append(now)
            # a bucket is 5 seconds wide: a window is between 115 and 120 long
            recent = [at for at in extras if at > now - 115]
            assert len(recent) <= 0.1 * len([at for at in calls if at > now - 120]) + 2
