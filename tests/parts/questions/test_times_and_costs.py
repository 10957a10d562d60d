"""The intervals of `fast` and `cost` where requests come in sessions of tenants.

Six kinds of traffic, as of the shares in `test_clusters`. Times and costs are log-normal, with a
level of each session and each tenant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from ragmeter.parts.questions.catalogue import BY_NAME
from ragmeter.parts.questions.clusters import find_slot
from ragmeter.parts.questions.levels import TimeStretch, dependence_of, request_level
from ragmeter.parts.questions.movements import latency_level
from ragmeter.parts.questions.samples import SampleRange
from ragmeter.parts.questions.traffic import RequestColumns, RequestSums
from ragmeter.parts.views import Level
from ragmeter.windows.log_histogram import HIGH, LOW, LogHistogram, SparseLogHistogram, cell_index

Floats = NDArray[np.float64]

RUNS = 150
BINS = np.linspace(math.log(LOW), math.log(HIGH), 3_001)


class Kind(NamedTuple):
    """Traffic: deviations of tenants and sessions, of logarithms that scatter by `NOISE`."""

    tenants: int
    tenant_sd: float
    session_sd: float
    length: float  # mean number of requests in a session
    again: float = 0.0  # part of the slow requests that are sent once more
    uneven: bool = False  # volumes of the tenants vary from window to window
    requests: int = 230  # in an hour


NOISE = 0.5
HELP_DESK = Kind(tenants=200, tenant_sd=0.2, session_sd=0.3, length=2.2)
TWELVE = Kind(12, 0.3, 0.3, 3.0, again=0.2, uneven=True)
KINDS = {
    "a help desk": HELP_DESK,
    "slow requests are sent again": HELP_DESK._replace(again=0.5),
    "agents": Kind(tenants=200, tenant_sd=0.2, session_sd=0.4, length=6.0, again=0.2),
    "twelve tenants": TWELVE,
    "twelve tenants at 3,000 an hour": TWELVE._replace(requests=3_000),
    "forty tenants": Kind(40, 0.25, 0.3, 3.0, uneven=True),
}


class Requests(NamedTuple):
    """The logarithms of the seconds and of the cost of requests, their sessions and tenants."""

    times: Any
    costs: Any
    session: Any
    tenant: Any


class Service:
    """A service of one kind, whose tenants keep their levels."""

    def __init__(self, kind: Kind, rng: np.random.Generator) -> None:
        self._kind = kind
        self._rng = rng
        self._levels = rng.normal(0, kind.tenant_sd, (2, kind.tenants))
        self._shares = 1 / np.arange(1, kind.tenants + 1) ** 1.1

    def draw(self, requests: int) -> Requests:
        """Return the requests of a window."""
        kind, rng = self._kind, self._rng
        shares = self._shares
        if kind.uneven:
            shares = shares * rng.lognormal(0, 0.8, kind.tenants)
        number = rng.poisson(requests / kind.length)
        return self._send(rng.choice(kind.tenants, number, p=shares / shares.sum()))

    def by_tenant(self) -> tuple[Floats, Floats]:
        """Return the distribution of the times of each tenant by `BINS`, and the mean cost."""
        drawn = self._send(np.repeat(np.arange(self._kind.tenants), 3_000))
        tenants = self._kind.tenants
        place = np.clip(np.searchsorted(BINS, drawn.times), 1, len(BINS) - 1) - 1
        times = np.zeros((tenants, len(BINS) - 1))
        np.add.at(times, (drawn.tenant, place), 1.0)
        number = np.bincount(drawn.tenant, minlength=tenants)
        costs = np.bincount(drawn.tenant, np.exp(drawn.costs), minlength=tenants)
        return times / number[:, None], costs / number

    def _send(self, of_session: Any) -> Requests:
        kind, rng = self._kind, self._rng
        count = len(of_session)
        session = np.repeat(np.arange(count), rng.geometric(1 / kind.length, count))
        levels = self._levels[:, of_session] + rng.normal(0, kind.session_sd, (2, count))
        drawn = levels[:, session] + rng.normal(0, NOISE, (2, len(session)))
        slow = np.flatnonzero((drawn[0] > 1) & (rng.random(len(session)) < kind.again))
        again = drawn[:, slow] + rng.normal(0, 0.1, (2, len(slow)))
        session = np.concatenate([session, session[slow]])
        times, costs = np.concatenate([drawn, again], axis=1)
        return Requests(times + 0.5, costs - 6, session, of_session[session])


def levels_of(requests: Requests, *, tenants: bool) -> tuple[Level | None, Level | None]:
    """Return the levels of `fast` and `cost`, as the part gives them."""
    sums = RequestSums()
    seconds = np.exp(requests.times)
    cells: dict[int, int] = {}
    histogram = LogHistogram()
    sums.add_requests(
        RequestColumns(
            at=[0.0] * len(seconds),
            weights=[1.0] * len(seconds),
            values={"fast": requests.times.tolist(), "cost": np.exp(requests.costs).tolist()},
            clusters=[slot("session", int(session)) for session in requests.session],
            tenants=[slot("tenant", int(tenant)) for tenant in requests.tenant],
            strata=[()] * len(seconds),
        ),
        whole=True,
    )
    for one in seconds:
        cell = cell_index(float(one))
        cells[cell] = cells.get(cell, 0) + 1
    histogram.merge_sketch(SparseLogHistogram(len(seconds), len(seconds), cells))
    dependence = dependence_of(sums, "fast", tenants=tenants)
    return (
        latency_level(histogram, dependence=dependence),
        request_level(
            BY_NAME["cost"], TimeStretch("1h", SampleRange.of([]), lambda: sums), tenants=tenants
        ),
    )


SLOTS_OF: dict[tuple[str, int], int] = {}


def slot(kind: str, number: int) -> int:
    key = (kind, number)
    if key not in SLOTS_OF:
        SLOTS_OF[key] = find_slot(f"{kind} {number}")
    return SLOTS_OF[key]


class Held(NamedTuple):
    """The level of a window, and whether its interval holds the truth."""

    level: Level
    truth: float

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth; an end that is not known does not miss."""
        level = self.level
        return level.lower <= self.truth and (level.upper is None or self.truth <= level.upper)


def hours(kind: Kind, seed: int, runs: int) -> Iterator[Mapping[str, Held]]:
    """Yield the levels of hours, with what the process behind them is."""
    service = Service(kind, np.random.default_rng(seed))
    drawn = [service.draw(kind.requests) for _ in range(max(800, runs))]
    p95 = math.exp(np.quantile(np.concatenate([one.times for one in drawn]), 0.95))
    cost = float(np.exp(np.concatenate([one.costs for one in drawn])).mean())
    for one in drawn[:runs]:
        yield read(one, p95, cost, tenants=True)


def days(kind: Kind, seed: int, runs: int) -> Iterator[Mapping[str, Held]]:
    """Yield the levels of days, with what their tenants are at their volumes."""
    service = Service(kind, np.random.default_rng(seed))
    times, costs = service.by_tenant()
    for _ in range(runs):
        one = service.draw(3_000)
        volumes = np.bincount(one.tenant, minlength=kind.tenants)
        shares = volumes / volumes.sum()
        p95 = math.exp(BINS[1 + int(np.searchsorted(np.cumsum(shares @ times), 0.95))])
        yield read(one, p95, float(shares @ costs), tenants=False)


def read(requests: Requests, p95: float, cost: float, *, tenants: bool) -> Mapping[str, Held]:
    levels = zip(("fast", "cost"), levels_of(requests, tenants=tenants), (p95, cost), strict=True)
    return {name: Held(level, truth) for name, level, truth in levels if level is not None}


def coverage(windows: Iterable[Mapping[str, Held]], question: str) -> float:
    held = [one[question].held for one in windows if question in one]
    assert len(held) > 0.8 * RUNS  # few windows have too few independent requests
    return sum(held) / len(held)


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [hours, days])
@pytest.mark.parametrize("name", KINDS)
def test_the_p95_and_the_mean_cost_are_covered(name: str, stretch: Any) -> None:
    windows = list(stretch(KINDS[name], 20_266, RUNS))
    least = 0.93 - 2 * math.sqrt(0.93 * 0.07 / RUNS)  # of so few windows
    for question in ("fast", "cost"):
        assert coverage(windows, question) >= least
