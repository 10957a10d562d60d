"""The design effect of requests that come in sessions of tenants."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from ragmeter.parts.questions.clusters import (
    LEAST_TENANTS,
    SLOTS,
    design_effect_of_change,
    design_effects,
    effective_samples,
    find_slot,
)
from ragmeter.windows.estimators import wilson_interval

Floats = NDArray[np.float64]

WINDOWS = 400


def slots_of(values: Any, keys: Any) -> tuple[Floats, Floats]:
    places = np.array([find_slot(f"key {key}") for key in range(int(keys.max()) + 1)])[keys]
    counts, sums = np.zeros(SLOTS), np.zeros(SLOTS)
    np.add.at(counts, places, 1.0)
    np.add.at(sums, places, values)
    return counts, sums


def worth(values: Any, clusters: Any, tenants: Any | None = None) -> float:
    own = slots_of(values, clusters)
    counts, sums = np.stack((own, own if tenants is None else slots_of(values, tenants)), axis=1)
    of_all, of_sample = effective_samples(
        counts[:, None],
        sums[:, None],
        samples=np.array([float(len(values))]),
        means=np.array([values.mean()]),
        variances=np.array([values.var(ddof=1)]),
        bounded=np.array([True]),
    )
    return float((of_all if tenants is None else of_sample)[0])


def effect(slots: tuple[Floats, Floats], samples: float, mean: float, variance: float) -> float:
    counts, sums = slots
    (found,) = design_effects(
        counts[None],
        sums[None],
        samples=np.array([samples]),
        means=np.array([mean]),
        variances=np.array([variance]),
        bounded=np.array([True]),
    )
    return float(found)


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


def effect_of_change(values: Any, keys: Any) -> float:
    """Of a change from the first half of the requests to the second."""
    half = len(values) // 2
    return design_effect_of_change(
        slots_of(values[:half], keys[:half]),
        slots_of(values[half:], keys[half:]),
        samples=half / 2,
        mean=float(values.mean()),
        variance=float(values.var(ddof=1)),
    )


def test_what_questions_are_like_in_both_stretches_says_nothing_of_a_change() -> None:
    rng = np.random.default_rng(2)
    level = rng.uniform(0, 1, 24)
    effects = []
    for _ in range(50):
        asked = rng.integers(0, 24, 1200)
        values = np.clip(level[asked] + rng.normal(0, 0.05, 1200), 0, 1)
        assert len(values) / worth(values, asked) > 5
        effects.append(effect_of_change(values, asked))
    assert np.mean(effects) < 1.5


def test_sessions_of_one_stretch_are_dependent_in_a_change_too() -> None:
    rng = np.random.default_rng(3)
    sessions = np.repeat(np.arange(200), 6)
    values = np.clip(np.repeat(rng.uniform(0, 1, 200), 6) + rng.normal(0, 0.1, 1200), 0, 1)
    assert effect_of_change(values, sessions) > 3


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
    slots = slots_of(values, np.arange(100) // 3)
    assert 1 <= effect(slots, samples=100, mean=mean, variance=0.0) < 1.2


def test_one_cluster_tells_nothing() -> None:
    slots = slots_of(np.array([1.0, 0.0, 1.0]), np.zeros(3, np.int64))
    assert effect(slots, samples=3, mean=2 / 3, variance=1 / 3) == 1.0


def test_means_are_found_alike_alone_and_with_others() -> None:
    rng = np.random.default_rng(5)
    rows = [(rng.random(200), rng.integers(0, 60, 200), rng.integers(0, n, 200)) for n in (3, 40)]
    slots = [(slots_of(values, one), slots_of(values, two)) for values, one, two in rows]
    counts, sums = np.array(slots).transpose(2, 1, 0, 3)
    together = effective_samples(
        counts,
        sums,
        samples=np.full(2, 200.0),
        means=np.array([values.mean() for values, *_ in rows]),
        variances=np.array([values.var(ddof=1) for values, *_ in rows]),
        bounded=np.full(2, True),
    )
    of_all, of_sample = together
    assert of_all.tolist() == [worth(values, one) for values, one, _ in rows]
    assert of_sample.tolist() == [worth(*row) for row in rows]
    assert of_sample[0] == of_all[0]  # three tenants are no sample


class Kind(NamedTuple):
    """Traffic: sessions of tenants, each with a level of its own on the logit.

    `again` is the part of the bad answers that are asked for once more, three of four in vain.
    """

    tenants: int
    tenant_sd: float
    session_sd: float
    length: float  # mean number of requests in a session
    again: float = 0.0
    uneven: bool = False  # volumes of the tenants vary from window to window
    graded: bool = False  # values lie anywhere in 0..1
    requests: int = 230  # in an hour


HELP_DESK = Kind(tenants=200, tenant_sd=0.5, session_sd=0.8, length=2.2)
KINDS = {
    "a help desk": HELP_DESK,
    "bad answers are asked for again": HELP_DESK._replace(again=0.5),
    "agents": Kind(tenants=200, tenant_sd=0.5, session_sd=1.0, length=6.0, again=0.2),
    "twelve tenants": Kind(12, 0.8, 0.8, 3.0, again=0.2, uneven=True),
    "twelve tenants at 3,000 an hour": Kind(
        12, 0.8, 0.8, 3.0, again=0.2, uneven=True, requests=3_000
    ),
    "grounding of forty tenants": Kind(40, 0.6, 0.8, 3.0, uneven=True, graded=True),
}


class Service:
    """A service of one kind, whose tenants keep their levels."""

    def __init__(self, kind: Kind, rng: np.random.Generator) -> None:
        self._kind = kind
        self._rng = rng
        self._levels = 2.3 + rng.normal(0, kind.tenant_sd, kind.tenants)
        self._shares = 1 / np.arange(1, kind.tenants + 1) ** 1.1

    def draw(self, requests: int) -> tuple[Any, Any, Any]:
        """Return values, sessions and tenants of the requests of a window."""
        kind, rng = self._kind, self._rng
        shares = self._shares
        if kind.uneven:
            shares = shares * rng.lognormal(0, 0.8, kind.tenants)
        of_session = rng.choice(
            kind.tenants, rng.poisson(requests / kind.length), p=shares / shares.sum()
        )
        return self._answer(of_session)

    def levels(self) -> Floats:
        """Return the mean value of each tenant's requests."""
        values, _, tenants = self._answer(np.repeat(np.arange(self._kind.tenants), 3_000))
        sums = np.bincount(tenants, values, minlength=self._kind.tenants)
        return np.asarray(sums / np.bincount(tenants, minlength=self._kind.tenants))

    def _answer(self, of_session: Any) -> tuple[Any, Any, Any]:
        kind, rng = self._kind, self._rng
        count = len(of_session)
        session = np.repeat(np.arange(count), rng.geometric(1 / kind.length, count))
        logit = (self._levels[of_session] + rng.normal(0, kind.session_sd, count))[session]
        if kind.graded:
            noise = rng.normal(0, 0.15, len(logit))
            values = np.clip(1 / (1 + np.exp(1.5 - logit)) + noise, 0, 1)
            return values, session, of_session[session]
        values = 1.0 * (rng.random(len(logit)) < 1 / (1 + np.exp(-logit)))
        bad = np.flatnonzero((values == 0) & (rng.random(len(values)) < kind.again))
        session = np.concatenate([session, session[bad]])
        values = np.concatenate([values, 1.0 * (rng.random(len(bad)) < 0.25)])
        return values, session, of_session[session]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_an_hour_covers_the_process(name: str) -> None:
    kind = KINDS[name]
    rng = np.random.default_rng(20_263)
    service = Service(kind, rng)
    windows = [service.draw(kind.requests) for _ in range(2 * WINDOWS)]
    truth = sum(values.sum() for values, _, _ in windows) / sum(len(one) for one, _, _ in windows)
    held = 0
    for values, session, tenant in windows[:WINDOWS]:
        lower, upper = wilson_interval(float(values.mean()), worth(values, session, tenant))
        held += lower <= truth <= upper
    assert held / WINDOWS >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_day_covers_the_tenants_that_there_are(name: str) -> None:
    rng = np.random.default_rng(20_264)
    service = Service(KINDS[name], rng)
    levels = service.levels()
    held = 0
    for _ in range(WINDOWS):
        values, session, tenant = service.draw(3_000)
        truth = levels[tenant].mean()
        lower, upper = wilson_interval(float(values.mean()), worth(values, session))
        held += lower <= truth <= upper
    assert held / WINDOWS >= 0.93
