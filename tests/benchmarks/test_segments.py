"""The simulation behind docs/drift.md measures what it says, in small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import segments
from benchmarks.segments import Design, traffic


def test_a_planted_fall_is_in_one_segment_of_one_metric() -> None:
    design = Design(10, 4000, 4000, drop=0.3)
    rng = np.random.default_rng(1)
    before, now = (traffic(rng, 40_000, design, moved) for moved in (False, True))
    for metric in range(segments.METRICS):
        for value in range(5):
            means = [one.values[one.tags[:, 0] == value, metric].mean() for one in (before, now)]
            fell = metric == 0 and value == 1
            assert means[1] - means[0] == pytest.approx(-0.3 if fell else 0.0, abs=0.04)


def test_sums_by_segment_are_those_of_the_values() -> None:
    rng = np.random.default_rng(2)
    one = traffic(rng, 500, Design(10, 0, 500), moved=False)
    cells = segments._cells(one, 2, 5, None)
    mine = one.values[one.tags[:, 1] == 3, 2]
    assert cells["t1=3"].n == len(mine)
    assert cells["t1=3"].y / 2**30 == pytest.approx(mine.sum())
    assert cells["t1=3"].yy / 2**60 == pytest.approx((mine**2).sum())
    judged = segments._cells(one, 2, 5, rng)[""].sums()
    assert sum(sums.size for sums in judged.values()) / 2**24 == pytest.approx(500)
    assert sum(sums.n for sums in judged.values()) < 250


def test_each_for_itself_finds_what_is_not_there() -> None:
    row = segments._row(Design(10, 4000, 1000), 6)
    false = row["false"]
    assert isinstance(false, dict)
    assert false["each for itself"] > 0.4 > false["shipped"]


def test_the_larger_p_value_is_the_one_that_holds() -> None:
    found = segments._exact(20, 100, 0.001)
    assert found["own"] > 0.003
    assert found["pooled"] > 0.002
    assert found["shipped"] < 0.0012
