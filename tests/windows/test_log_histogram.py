from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.arithmetic import WEIGHT_ONE, weight_units
from ragmeter.windows.log_histogram import (
    HIGH,
    HISTOGRAM_CELLS,
    LOW,
    LogHistogram,
    SparseLogHistogram,
    cell_index,
    cell_value,
    cell_weights,
)

QUANTILES = (0.5, 0.95, 0.99)


def exact(values: list[float], q: float) -> float:
    return sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]


@settings(deadline=None, derandomize=True)
@given(st.floats(LOW, HIGH, exclude_min=True, exclude_max=True))
def test_every_value_in_range_is_answered_within_one_per_cent(value: float) -> None:
    assert abs(cell_value(cell_index(value)) - value) <= 0.01 * value * (1 + 1e-9)


def test_values_out_of_range_are_answered_by_the_edge() -> None:
    assert cell_index(0.0) == cell_index(LOW) == 0
    assert cell_index(HIGH) == cell_index(math.inf) == HISTOGRAM_CELLS - 1
    assert (cell_value(0), cell_value(HISTOGRAM_CELLS - 1)) == (LOW, HIGH)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_error_after_merging_and_after_expiry(sigma: float) -> None:
    rng = random.Random(11)
    parts = [[rng.lognormvariate(0, sigma) for _ in range(300)] for _ in range(30)]
    sketches = []
    total = LogHistogram()
    for part in parts:
        sketch = SparseLogHistogram()
        sketch.add([cell_index(v) for v in part])
        sketch.seal()
        sketches.append(sketch)
        total.merge_sketch(sketch)
    everything = [v for part in parts for v in part]
    for q in QUANTILES:
        assert total.quantile(q) == pytest.approx(exact(everything, q), rel=0.0101)
    for sketch in sketches[:10]:
        total.merge_sketch(sketch, -1)
    left = [v for part in parts[10:] for v in part]
    for q in QUANTILES:
        assert total.quantile(q) == pytest.approx(exact(left, q), rel=0.0101)
    for sketch in sketches[10:]:
        total.merge_sketch(sketch, -1)
    assert (total.n, total.w2, set(total.counts)) == (0, 0, {0})
    assert total.quantile(0.5) is None


def test_weights_move_a_quantile() -> None:
    hist = LogHistogram()
    for _ in range(9):
        hist.add(1.0)
    hist.add(10.0, weight_units(0.01))
    assert hist.quantile(0.5) == pytest.approx(10.0, rel=0.01)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, HISTOGRAM_CELLS - 1), st.sampled_from([1.0, 0.5, 0.3]))))
def test_sealing_and_content_lose_nothing(samples: list[tuple[int, float]]) -> None:
    sketch = SparseLogHistogram()
    for cell, probability in samples:
        sketch.add([cell], weight_units(probability))
    before = sorted(sketch.items())
    sketch.seal()
    assert sorted(sketch.items()) == before
    again = SparseLogHistogram(sketch.n, sketch.w2, dict(cell_weights(*sketch.content())))
    assert sorted(again.items()) == before
    assert again.content() == sketch.content()


def test_a_sealed_sketch_opens_for_a_late_sample() -> None:
    sketch = SparseLogHistogram()
    sketch.add([5, 5])
    sketch.seal()
    sketch.add([5, 7])
    assert sketch.counts() == {5: 3 * WEIGHT_ONE, 7: WEIGHT_ONE}


def test_merging_histograms_is_order_free() -> None:
    rng = random.Random(3)
    parts = []
    for _ in range(4):
        part = LogHistogram()
        for _ in range(50):
            part.add(rng.random(), weight_units(rng.uniform(0.1, 1)))
        parts.append(part)
    one, two = LogHistogram(), LogHistogram()
    for part in parts:
        one.merge(part)
    for part in reversed(parts):
        two.merge(part)
    assert (one.counts, one.n, one.w2) == (two.counts, two.n, two.w2)


@pytest.mark.parametrize(
    ("n", "carried", "bounded"),
    [(5, [0.5], []), (20, [0.5, 0.95], [0.5]), (100, [0.5, 0.95, 0.99], [0.5, 0.95])],
)
def test_quantiles_need_samples_beyond_them(
    n: int, carried: list[float], bounded: list[float]
) -> None:
    hist = LogHistogram()
    for i in range(n):
        hist.add(1 + i / n)
    found = hist.limits(QUANTILES)
    assert [f.quantile for f in found] == carried
    assert [f.quantile for f in found if f.upper is not None] == bounded


def test_limits_cover_the_true_median() -> None:
    rng = random.Random(5)
    covered = 0
    for _ in range(300):
        hist = LogHistogram()
        for _ in range(60):
            hist.add(rng.lognormvariate(0, 0.5))
        median = hist.limits([0.5])[0]
        assert median.upper is not None
        covered += median.lower <= 1.0 <= median.upper
    assert covered >= 0.93 * 300
