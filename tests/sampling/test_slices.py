"""Draws from slices of a score: equal probability, spread over the score."""

from __future__ import annotations

import random
from collections import Counter

from ragmeter.sampling.slices import draw_slices


def test_every_trace_is_drawn_with_the_same_probability() -> None:
    rng = random.Random(3)
    cheap = [0.1, 0.9, None, 0.5, 0.5, 0.2, 1.0]
    times = Counter(at for _ in range(7000) for at in draw_slices(cheap, 3, rng))
    assert all(abs(times[at] / 7000 - 3 / 7) < 0.03 for at in range(7))


def test_a_draw_has_one_trace_of_each_slice_and_none_twice() -> None:
    rng = random.Random(4)
    cheap = [at / 100 for at in range(100)]
    for _ in range(50):
        drawn = draw_slices(cheap, 7, rng)
        assert len(set(drawn)) == 7
        assert sorted(at * 7 // 100 for at in drawn) == list(range(7))


def test_the_first_of_a_draw_are_a_random_part_of_it() -> None:
    rng = random.Random(5)
    first = [draw_slices([at / 10 for at in range(10)], 10, rng)[0] for _ in range(2000)]
    assert all(abs(first.count(at) / 2000 - 0.1) < 0.03 for at in range(10))


def test_no_more_than_there_are() -> None:
    assert sorted(draw_slices([None, 0.5], 30, random.Random(0))) == [0, 1]
    assert draw_slices([], 30, random.Random(0)) == []
