from __future__ import annotations

import math
import random

import pytest
from ragmeter.core.arithmetic import cosine_similarity, is_same_space, pack_vector, packed_cosine


def test_by_hand() -> None:
    east, north, between = (
        pack_vector([1, 0], "m"),
        pack_vector([0, 1], "m"),
        pack_vector([1, 1], "m"),
    )
    assert packed_cosine(east, north) == 0
    assert packed_cosine(east, between) == pytest.approx(math.sqrt(0.5))
    assert packed_cosine(east, east) == pytest.approx(1)
    assert packed_cosine(pack_vector([3, 4], "m"), pack_vector([4, 3], "m")) == pytest.approx(
        24 / 25, abs=0.002
    )


def test_vectors_of_other_models_or_lengths_are_not_compared() -> None:
    one = pack_vector([1, 0], "m")
    assert packed_cosine(one, pack_vector([1, 0], "other")) is None
    assert packed_cosine(one, pack_vector([1, 0, 0], "m")) is None
    assert packed_cosine(one, "") is None
    assert packed_cosine("", "") is None
    assert is_same_space(one, pack_vector([0, 1], "m"))


@pytest.mark.parametrize("size", [64, 384, 1536])
def test_what_rounding_moves(size: int) -> None:
    """Gaussian numbers, and a few that are 20 times as large, as some models have them."""
    draw = random.Random(size)
    worst = 0.0
    for _ in range(60):
        one = [draw.gauss(0, 1) for _ in range(size)]
        for index in range(3):
            one[index] *= draw.choice((1, 20))
        share = draw.random()
        other = [share * value + (1 - share) * draw.gauss(0, 1) for value in one]
        exact, found = (
            cosine_similarity(one, other),
            packed_cosine(pack_vector(one, "m"), pack_vector(other, "m")),
        )
        assert exact is not None
        assert found is not None
        worst = max(worst, abs(exact - found))
    assert worst < 0.005
