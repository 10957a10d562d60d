from __future__ import annotations

import pytest
from ragmeter.core.arithmetic import cosine_similarity


def test_by_hand() -> None:
    assert cosine_similarity([1, 0], [1, 1]) == pytest.approx(0.5**0.5)  # 45 degrees
    assert cosine_similarity([3, 4], [4, 3]) == pytest.approx(24 / 25)
    assert cosine_similarity([1, 2, 2], [2, 1, 2]) == pytest.approx(8 / 9)
    assert cosine_similarity([3, 4], [3, 4]) == pytest.approx(1)
    assert cosine_similarity([3, 4], [30, 40]) == pytest.approx(1), "length says nothing"


def test_opposite_meanings_are_no_nearer_than_none() -> None:
    assert cosine_similarity([1, 0], [-1, 0]) == 0
    assert cosine_similarity([1, 0], [0, 1]) == 0


def test_where_there_is_no_angle_there_is_no_value() -> None:
    assert cosine_similarity([0, 0], [1, 0]) is None
    assert cosine_similarity([1], [1, 0]) is None
    assert cosine_similarity([float("nan")], [1]) is None
    assert cosine_similarity([1e200, 1e200], [1e200, 1e200]) is None, "overflow is no similarity"
