"""How soon the part `drift` tells of faults in realistic traffic, and how often of none.

Run with `python -m benchmarks.drift [--seeds 1 2 3] [--faults NAME ...]`.

A stream is 70 days of some four requests a minute of 40 tenants of Zipf's sizes, each with a level,
a time zone and weekends of its own, sessions, batch jobs of 4 to 15 times a tenant's load, a season
of .015, releases of .008 and holidays; with an odd seed days are off by .008 and tenants are
further apart. The fault comes on day 36. The streams go through the part as it runs, without texts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from ragmeter.parts.drift.detector import DAY, FINE
from ragmeter.parts.drift.part import DriftPart, specs
from ragmeter.parts.drift.settings import DriftDetectionSettings
from ragmeter.parts.views import RequestHistory, RequestSeries
from ragmeter.windows.windows import Windows

__all__ = ["BEGIN", "FAULTS", "SERIES", "NoWindows", "Traffic", "make_traffic", "play"]

Numbers = NDArray[np.float64]

SERIES = tuple(spec.name for spec in specs(DriftDetectionSettings()))

BEGIN = 20_000 * DAY
PER_DAY = DAY // FINE
FAULT_DAY = 36.3
_RATE = 4.1  # requests a minute
_SPREAD = 0.25  # standard deviation of a score
_TENANTS = 40
_GROUPS = 32  # of clusters, by which dependence is measured

FAULTS = ("+.05", "+.20", "ramp", "tenant", "slow", "dip")
"""A fall by so much; by .10 within a day; of the second tenant by .5; by .06 in two weeks; by .30
for 40 minutes."""


class Traffic(NamedTuple):
    """Sums of a score by bucket of five minutes.

    Args:
        sums: Shape (buckets, 5), as `ragmeter.parts.drift.detector` has them.
        groups: Shape (buckets, groups, 2): requests and sums by group of sessions.
    """

    sums: Numbers
    groups: Numbers


def make_traffic(seed: int, days: int = 70, fault: str = "") -> Traffic:
    """Return a stream, with a fault from day `FAULT_DAY` on."""
    rng = np.random.default_rng([901, seed])
    off = 0.008 if seed % 2 else 0.0
    count = days * PER_DAY
    time = np.arange(count)
    day, hour = time // PER_DAY, time // 12
    size = 1 / np.arange(1, _TENANTS + 1)
    size /= size.sum()
    level = rng.normal(0, 0.09 if off else 0.06, _TENANTS)
    zone = rng.integers(0, 24, _TENANTS)
    weekend = rng.uniform(0.15, 1, _TENANTS)
    base = 0.68 + 0.015 * np.sin(
        2 * np.pi * time / PER_DAY / rng.uniform(40, 90) + rng.uniform(0, 6)
    )
    releases = np.zeros(count)
    for _ in range(days // 7):
        releases[rng.integers(0, count) :] += rng.normal(0, 0.005)
    base += np.clip(releases, -0.016, 0.016) + rng.normal(0, off, days + 1)[day]
    quiet = np.isin(day, rng.choice(days, 3, replace=False))
    shift = _shift(fault, count)
    sums, groups = np.zeros((count, 5)), np.zeros((count, _GROUPS, 2))
    for tenant in range(_TENANTS):
        local = (hour + zone[tenant]) % 24
        load = np.where((local > 8) & (local < 19), 1.0, 0.25)
        load = load * np.where((day + int(zone[tenant] > 12)) % 7 >= 5, weekend[tenant], 1)
        load = load * np.where(quiet, 0.4, 1)
        for one in np.flatnonzero(rng.random(days) < 0.08):
            begin = one * PER_DAY + rng.integers(0, 270)
            load[begin : begin + rng.integers(3, 14)] *= rng.uniform(4, 15)
        sessions = np.repeat(time, rng.poisson(load * size[tenant] * _RATE * 5 / 0.6 / 2.2))
        length = rng.geometric(1 / 2.2, len(sessions))
        place = np.repeat(sessions, length)
        group = np.repeat(rng.integers(0, _GROUPS, len(sessions)), length)
        alike = np.repeat(rng.normal(0, 0.1, len(sessions)), length)
        mean = base[place] + level[tenant] + shift[place]
        if fault == "tenant" and tenant == 1:
            mean = mean - 0.5 * (place >= FAULT_DAY * PER_DAY)
        noise = rng.normal(0, np.sqrt(_SPREAD**2 - 0.01), len(place))
        value = np.clip(np.clip(mean, 0.03, 0.97) + alike + noise, 0, 1)
        n = np.bincount(place, minlength=count)
        sums[:, 2] += np.bincount(place, weights=value, minlength=count)
        sums[:, 3] += np.bincount(place, weights=value**2, minlength=count)
        for column in (0, 1, 4):
            sums[:, column] += n
        flat = place * _GROUPS + group
        size_of = count * _GROUPS
        groups[..., 0] += np.bincount(flat, minlength=size_of).reshape(count, _GROUPS)
        groups[..., 1] += np.bincount(flat, value, size_of).reshape(count, _GROUPS)
    return Traffic(sums, groups)


def _shift(fault: str, count: int) -> Numbers:
    shift = np.zeros(count)
    begin = int(FAULT_DAY * PER_DAY)
    since = np.arange(max(0, count - begin)) / PER_DAY  # days
    if fault in ("+.05", "+.20"):
        shift[begin:] = -float(fault)
    elif fault == "ramp":
        shift[begin:] = -0.10 * np.minimum(1, since)
    elif fault == "slow":
        shift[begin:] = -0.06 * np.minimum(1, since / 14)
    elif fault == "dip":
        shift[begin : begin + 8] = -0.30
    return shift


class History(RequestHistory):
    """The traffic up to a time, as the part `questions` gives it."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._hours = traffic.sums.reshape(-1, 12, 5).sum(axis=1)
        self.known = 0  # buckets

    def request_sums(
        self, service: str, width: int, first: float, last: float
    ) -> RequestSeries | None:
        """Return the sums of requests by bucket, None where there is none."""
        begin = max(0, -int((BEGIN - first) // width))
        end = min(-int((BEGIN - last) // width), -int(-self.known * FINE // width))
        numbers = np.arange(begin, max(begin, end))
        if width == FINE:
            rows = self._traffic.sums[numbers]
        else:
            rows = self._hours[numbers].copy()
            if len(numbers) and (numbers[-1] + 1) * 12 > self.known:  # the open hour
                rows[-1] = self._traffic.sums[numbers[-1] * 12 : self.known].sum(axis=0)
        filled = rows[:, 0] > 0
        starts = BEGIN + width * numbers[filled].astype(float)
        if not len(starts):
            return None
        sums = np.zeros((len(starts), len(SERIES), 5))
        sums[:, SERIES.index("grounded")] = rows[filled]
        return RequestSeries(SERIES, starts, sums)

    def design_effects(
        self, service: str, width: int, first: float, last: float
    ) -> dict[str, float]:
        """Return the design effect of the day before `last`, from groups of sessions."""
        end = int((last - BEGIN) // FINE)
        day = slice(max(0, end - PER_DAY), end)
        groups = self._traffic.groups[day].sum(axis=0)
        n, total = groups[:, 0], groups[:, 1]
        if n.sum() < 200:
            return {}
        mean = total.sum() / n.sum()
        variance = self._traffic.sums[day, 3].sum() / n.sum() - mean**2
        between = ((total - mean * n) ** 2).sum() / (n.sum() * variance) * _GROUPS / (_GROUPS - 1)
        return {"grounded": max(1.0, float(between))}


class NoWindows(Windows):
    """Windows that hold no trace, as there is none."""

    def advance(self, now: float) -> None:
        """Leave time alone."""

    def worst(self, *key: Any, **more: Any) -> list[Any]:
        """Return no trace."""
        return []


class Told(NamedTuple):
    """An alert: in which bucket it began or ended, and whether it pages."""

    at: int
    state: str
    severity: str


def play(traffic: Traffic) -> list[Told]:
    """Return what the part tells of a stream."""
    history = History(traffic)
    part = DriftPart(DriftDetectionSettings(), NoWindows(), lambda: history)
    found = []
    for number in range(len(traffic.sums)):
        if not traffic.sums[number, 0]:
            continue
        history.known = number + 1
        at = BEGIN + (number + 1) * FINE - 1.0
        arrival = SimpleNamespace(trace=SimpleNamespace(service="bot", timestamp=at))
        part.observe(cast(Any, SimpleNamespace(arrivals=[arrival])), at)
        for alert in part.advance(at + 60):
            found.append(Told(number, alert.state, alert.severity))
    return found


def find_delay(told: Sequence[Told]) -> float | None:
    """Return the minutes to the first alert after the fault, None without one in two weeks."""
    begin = int(FAULT_DAY * PER_DAY)
    for one in told:
        if begin <= one.at < begin + 14 * PER_DAY and one.state == "firing":
            return (one.at + 1 - begin) * FINE / 60
    return None


def main() -> None:
    """Print false alerts in 30 days, and the minutes to each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(201, 208)))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    arguments = parser.parse_args()
    false = 0
    for seed in arguments.seeds:
        fired = [one for one in play(make_traffic(seed)) if one.state == "firing"]
        false += len(fired)
        print(f"calm, seed {seed}: {[(round(one.at / PER_DAY, 2), one.severity) for one in fired]}")
    print(f"false alerts in 30 days: {false / len(arguments.seeds) / 70 * 30:.2f}")
    for fault in arguments.faults:
        days = 52 if fault == "slow" else 40
        delays = [find_delay(play(make_traffic(seed, days, fault))) for seed in arguments.seeds]
        ranked = sorted(float("inf") if one is None else one for one in delays)
        print(f"{fault}: median {statistics.median(ranked):g} minutes of {delays}", flush=True)


if __name__ == "__main__":
    main()
