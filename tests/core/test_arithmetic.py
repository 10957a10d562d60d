from __future__ import annotations

import pytest
from ragmeter.core.arithmetic import MAX_WEIGHT, VALUE_ONE, WEIGHT_ONE, value_units, weight_units


def test_values_and_weights_round_to_the_nearest_unit() -> None:
    assert value_units(0.5) == VALUE_ONE // 2
    assert abs(value_units(0.1) / VALUE_ONE - 0.1) <= 0.5 / VALUE_ONE
    assert weight_units(1.0) == WEIGHT_ONE
    assert abs(weight_units(0.3) / WEIGHT_ONE - 1 / 0.3) <= 0.5 / WEIGHT_ONE


def test_a_vanishing_probability_is_bounded() -> None:
    assert weight_units(1e-300) == round(MAX_WEIGHT * WEIGHT_ONE)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        value_units(value)
