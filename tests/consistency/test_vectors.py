from __future__ import annotations

import math
import random

import pytest

from agent.consistency.vectors import likeness, pack, same_space
from agent.metrics.cosine import cosine


def test_by_hand() -> None:
    east, north, between = pack([1, 0], "m"), pack([0, 1], "m"), pack([1, 1], "m")
    assert likeness(east, north) == 0
    assert likeness(east, between) == pytest.approx(math.sqrt(0.5))
    assert likeness(east, east) == pytest.approx(1)
    assert likeness(pack([3, 4], "m"), pack([4, 3], "m")) == pytest.approx(24 / 25, abs=0.002)


def test_vectors_of_other_models_or_lengths_are_not_compared() -> None:
    one = pack([1, 0], "m")
    assert likeness(one, pack([1, 0], "other")) is None
    assert likeness(one, pack([1, 0, 0], "m")) is None
    assert likeness(one, "") is None
    assert likeness("", "") is None
    assert same_space(one, pack([0, 1], "m"))


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
        exact, found = cosine(one, other), likeness(pack(one, "m"), pack(other, "m"))
        assert exact is not None
        assert found is not None
        worst = max(worst, abs(exact - found))
    assert worst < 0.005
