from __future__ import annotations

import pytest
from ragmeter.parts.segments.breakdown import adjust_p_values

BENJAMINI = (
    0.0001,
    0.0004,
    0.0019,
    0.0095,
    0.0201,
    0.0278,
    0.0298,
    0.0344,
    0.0459,
    0.3240,
    0.4262,
    0.5719,
    0.6528,
    0.7590,
    1.0,
)
"""The 15 p values of section 3 of Benjamini and Hochberg (1995)."""


def test_the_example_of_the_paper() -> None:
    # at .05 the procedure of the paper rejects the first four
    qs = adjust_p_values(BENJAMINI)
    assert [q <= 0.05 for q in qs] == [True] * 4 + [False] * 11
    assert qs[0] == pytest.approx(0.0015)
    assert qs[3] == pytest.approx(0.0095 * 15 / 4)


def test_the_order_of_the_questions_does_not_matter() -> None:
    assert adjust_p_values(BENJAMINI[::-1]) == adjust_p_values(BENJAMINI)[::-1]


def test_a_larger_p_never_has_a_smaller_q() -> None:
    qs = adjust_p_values([0.01, 0.011, 0.9])
    assert qs[0] == qs[1] == pytest.approx(0.0165)
    assert adjust_p_values([]) == []
    assert adjust_p_values([1.0, 1.0]) == [1.0, 1.0]
