"""The design effect of requests that come in sessions of tenants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ragmeter.parts.questions.clusters import (
    LEAST_TENANTS,
    SLOTS,
    design_effect,
    effective_samples,
    find_slot,
)

Floats = NDArray[np.float64]


def slots_of(values: Any, keys: Any) -> tuple[Floats, Floats]:
    places = np.array([find_slot(f"key {key}") for key in keys.tolist()])
    counts, sums = np.zeros(SLOTS), np.zeros(SLOTS)
    np.add.at(counts, places, 1.0)
    np.add.at(sums, places, values)
    return counts, sums


def worth(values: Any, clusters: Any, tenants: Any | None = None) -> float:
    return effective_samples(
        slots_of(values, clusters),
        None if tenants is None else slots_of(values, tenants),
        samples=len(values),
        mean=float(values.mean()),
        variance=float(values.var(ddof=1)),
    )


def test_slots_are_stable_and_even() -> None:
    assert [find_slot(name) for name in ("", "a", "session 2")] == [5, 21, 29]
    counts = np.bincount([find_slot(f"{n}") for n in range(32_000)], minlength=SLOTS)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert 0 <= find_slot("\ud800") < SLOTS  # half a pair of surrogates, as JSON may hold


def test_independent_requests_are_worth_nearly_all() -> None:
    rng = np.random.default_rng(1)
    parts = []
    for _ in range(100):
        values = 1.0 * (rng.random(300) < 0.9)
        parts.append(worth(values, np.arange(300)) / 300)
    assert max(parts) <= 1
    assert np.mean(parts) > 0.85


def test_repeated_requests_are_worth_one() -> None:
    """Each session says the same six times, so that it is worth one request."""
    rng = np.random.default_rng(2)
    parts = []
    for _ in range(100):
        values = np.repeat(1.0 * (rng.random(500) < 0.8), 6)
        parts.append(len(values) / worth(values, np.repeat(np.arange(500), 6)))
    assert 6 < np.mean(parts) < 7.5  # with Student's t of 31 degrees of freedom, 8 % more than 6


def test_tenants_count_where_they_are_a_sample() -> None:
    rng = np.random.default_rng(3)
    tenants = rng.integers(0, 40, 2_000)
    values = 1.0 * (rng.random(2_000) < rng.uniform(0.4, 1, 40)[tenants])
    alone = worth(values, np.arange(2_000))
    assert alone > 1_000
    assert worth(values, np.arange(2_000), tenants) < 500
    few = tenants % (LEAST_TENANTS - 1)
    assert worth(values, np.arange(2_000), few) == alone


def test_it_is_additive_over_buckets() -> None:
    rng = np.random.default_rng(4)
    values = rng.random(600)
    keys = rng.integers(0, 90, 600)
    first, second, both = (
        slots_of(values[part], keys[part]) for part in (slice(200), slice(200, 600), slice(600))
    )
    for one, two, whole in zip(first, second, both, strict=True):
        assert one + two == pytest.approx(whole)


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_equal_values_scatter_by_nothing(mean: float) -> None:
    values = np.full(100, mean)
    counts, sums = slots_of(values, np.arange(100) // 3)
    effect = design_effect(counts, sums, samples=100, mean=mean, variance=0.0)
    assert 1 <= effect < 1.2


def test_one_cluster_tells_nothing() -> None:
    counts, sums = slots_of(np.array([1.0, 0.0, 1.0]), np.zeros(3, np.int64))
    assert design_effect(counts, sums, samples=3, mean=2 / 3, variance=1 / 3) == 1.0
