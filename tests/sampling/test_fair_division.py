from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmeter.sampling.service_demand import divide_fairly

AMOUNT = st.floats(0, 1e6)


def test_who_asks_for_little_gets_it_all_and_the_rest_is_divided_equally() -> None:
    assert divide_fairly(10, [1, 100, 3, 100]) == [1, 3, 3, 3]


def test_enough_for_all() -> None:
    assert divide_fairly(10, [1, 2, 3]) == [1, 2, 3]
    assert divide_fairly(10, []) == []


@given(st.floats(0.001, 1e6), st.lists(AMOUNT, min_size=1, max_size=20))
def test_all_is_given_as_far_as_asked_for(total: float, demands: list[float]) -> None:
    given_ = divide_fairly(total, demands)
    assert sum(given_) == pytest.approx(min(total, sum(demands)))
    assert all(0 <= got <= asked for got, asked in zip(given_, demands, strict=True))
    # whoever is not served in full gets at least as much as anybody else
    short = [got for got, asked in zip(given_, demands, strict=True) if got < asked]
    if short:
        assert min(short) >= max(given_) * (1 - 1e-9)


@given(st.lists(AMOUNT, min_size=2, max_size=10), st.floats(1, 1e3))
def test_a_noisy_service_takes_nothing_below_an_equal_part(
    demands: list[float], times: float
) -> None:
    total = 100.0
    noisy = [demands[0] * times, *demands[1:]]
    for got, asked in zip(divide_fairly(total, noisy)[1:], demands[1:], strict=True):
        assert got >= min(asked, total / len(demands)) * (1 - 1e-9)
