"""How often a constant rate of errors pages, and how soon an outage does.

Run with `python -m benchmarks.drift_errors [--days 90] [--seeds 20] [--rates 1 6 60]`.

Requests come at random at so many a minute. Of the questions so many fail, and each of these is
tried again so often, in vain: the tries are one cluster, as they have the same session. The sums go
through the part `drift` as it runs, a look each minute.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from ragmeter.parts.drift.detector import DAY
from ragmeter.parts.drift.part import DriftPart
from ragmeter.parts.drift.settings import DriftDetectionSettings
from ragmeter.parts.questions.clusters import SLOTS, design_effects
from ragmeter.parts.views import RequestHistory, RequestSeries

from benchmarks.drift import BEGIN, SERIES, NoWindows

Numbers = NDArray[np.float64]

MINUTE = 60
PER_DAY = DAY // MINUTE
_LOOKED_AT = 4  # requests after which the part looks at the next minute: more change nothing


class ErrorTraffic(NamedTuple):
    """What came up to each minute.

    Args:
        requests: Shape (minutes + 1,): how many requests came before each minute.
        works: Shape (minutes + 1,): how many of them worked.
        slots: Shape (minutes + 1, slots, 2): the same by slot of the cluster.
    """

    requests: Numbers
    works: Numbers
    slots: Numbers


def make_errors(seed: int, shares: Numbers, rate: float, retries: int) -> ErrorTraffic:
    """Return requests at `rate` questions a minute, of which the given share fails by minute."""
    rng = np.random.default_rng([733, seed])
    minutes = len(shares)
    place = np.repeat(np.arange(minutes), rng.poisson(rate, minutes))
    failed = rng.random(len(place)) < shares[place]
    tries = np.where(failed, 1 + retries, 1)
    flat = place * SLOTS + rng.integers(0, SLOTS, len(place))
    size = minutes * SLOTS
    slots = np.zeros((minutes + 1, SLOTS, 2))
    slots[1:, :, 0] = np.bincount(flat, tries, size).reshape(minutes, SLOTS)
    slots[1:, :, 1] = np.bincount(flat, ~failed, size).reshape(minutes, SLOTS)
    slots = slots.cumsum(axis=0)
    total = slots.sum(axis=1)
    return ErrorTraffic(total[:, 0], total[:, 1], slots)


class ErrorHistory(RequestHistory):
    """The traffic up to a minute, as the part `questions` gives it."""

    def __init__(self, traffic: ErrorTraffic) -> None:
        self._traffic = traffic
        self.known = 0  # minutes

    def request_sums(
        self, service: str, width: int, first: float, last: float
    ) -> RequestSeries | None:
        """Return the sums of requests by bucket, None where there is none."""
        minutes = width // MINUTE
        begin = max(0, -int((BEGIN - first) // width))
        end = min(-int((BEGIN - last) // width), -(-self.known // minutes))
        numbers = np.arange(begin, max(begin, end))
        upto = np.minimum((numbers + 1) * minutes, self.known)
        n = self._traffic.requests[upto] - self._traffic.requests[numbers * minutes]
        works = self._traffic.works[upto] - self._traffic.works[numbers * minutes]
        filled = n > 0
        if not filled.any():
            return None
        sums = np.zeros((int(filled.sum()), len(SERIES), 5))
        columns = np.stack([n, n, works, works, n], axis=1)
        sums[:, SERIES.index("works")] = columns[filled]
        return RequestSeries(SERIES, BEGIN + width * numbers[filled].astype(float), sums)

    def design_effects(
        self, service: str, width: int, first: float, last: float
    ) -> dict[str, float]:
        """Return the design effect of the buckets that begin in [first, last)."""
        minutes = width // MINUTE
        begin = max(0, -int((BEGIN - first) // width)) * minutes
        end = min(-int((BEGIN - last) // width) * minutes, self.known)
        if end <= begin:
            return {}
        slots = self._traffic.slots[end] - self._traffic.slots[begin]
        n, works = slots.sum(axis=0)
        if not n:
            return {}
        mean = works / n
        (effect,) = design_effects(
            slots[None, :, 0],
            slots[None, :, 1],
            samples=np.array([n]),
            means=np.array([mean]),
            variances=np.array([mean * (1 - mean)]),
            bounded=np.array([True]),
        )
        return {"works": float(effect)}


def play(traffic: ErrorTraffic, since: int = 0) -> list[int]:
    """Return the minutes from `since` on in which the part pages."""
    history = ErrorHistory(traffic)
    part = DriftPart(DriftDetectionSettings(), NoWindows(), lambda: history)
    pages = []
    paging = False
    for minute, count in enumerate(np.diff(traffic.requests).tolist()):
        if not count:
            continue
        history.known = minute + 1
        at = BEGIN + (minute + 1) * MINUTE - 1.0
        arrival = SimpleNamespace(trace=SimpleNamespace(service="bot", timestamp=at))
        arrivals = [arrival] * min(int(count), _LOOKED_AT)
        part.observe(cast(Any, SimpleNamespace(arrivals=arrivals)), at)
        for alert in part.advance(at + 1):
            severe = alert.state == "firing" and alert.severity == "critical"
            if severe and not paging and minute >= since:
                pages.append(minute)
            paging = severe
    return pages


def main() -> None:
    """Print the pages of each cell, and the minutes to the page of an outage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 6, 60])
    arguments = parser.parse_args()
    cells = itertools.product(arguments.rates, (0.005, 0.01, 0.03), (0, 2))
    for rate, share, retries in cells:
        shares = np.full(arguments.days * PER_DAY, share)
        pages = play(make_errors(1, shares, rate, retries))
        words = f"{rate:g} a minute, {share:.1%} fail, {retries} retries"
        print(f"{words}: {len(pages)} pages in {arguments.days} days", flush=True)
    delays = []
    for seed in range(arguments.seeds):
        shares = np.full(2 * PER_DAY + 60, 0.01)
        shares[2 * PER_DAY :] = 0.5
        pages = play(make_errors(seed, shares, 10, 0), since=2 * PER_DAY)
        delays.append(pages[0] + 1 - 2 * PER_DAY if pages else float("inf"))
    print(f"50 % at 10 a minute page after {statistics.median(delays):g} minutes of {delays}")


if __name__ == "__main__":
    main()
