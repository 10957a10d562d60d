"""How much less dependent traffic tells of the process behind it: the design effect; pure.

Requests of one session, user or tenant are alike, so that 230 of them may tell no more than 150
independent ones. Clusters are put at random, by a hash of their name, into a fixed number of slots,
and what the slots scatter is the error of the mean (random groups: Wolter, Introduction to Variance
Estimation, 2007, chapter 2). The sums of a slot are additive over buckets of time and over agents,
and no session is ever open. A bucket with both keys of seven values has 32 x 2 x 7 x 2 numbers,
7 kB, and with the times of the requests 11 kB more; exact sums by session cover no better and need
every open session (the figures are in docs/decisions/dependence.md).

A request has two keys. Its *cluster* is its session, else its user, else its tenant, else its
query. Its *tenant* is its tenant, else its user, else its session, else its query.

An hour is about the process: another hour has other sessions, and tenants in other shares. So both
keys count, and the wider interval holds. A day is about the tenants that there are, at their
volumes of that day: only the cluster counts. Few tenants are no sample of tenants in an hour
either.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ragmeter.windows.estimators import Z_95, t975

Floats = NDArray[np.float64]

# Into so many slots clusters are put. The effect is known to a factor of 1 +- sqrt(2 / 31), which
# makes the intervals of independent requests 7 % wider than they need be with one key and 12 % with
# two; twice the slots make it 4 % and 9 %, and cost twice the memory.
SLOTS = 32

# Slots with tenants from which on these are a sample: with six, t is 2.6. Of fewer, t alone would
# say that nothing is known, and most services of a few tenants keep them.
LEAST_TENANTS = 6

# Pseudo-values at the bound that is farther from the mean, as in `ragmeter.windows.estimators`:
# near a bound both variances are near 0 and tell nothing.
_FAR_VALUES = 2.0


def find_slot(key: str) -> int:
    """Return the slot (0 to `SLOTS` - 1) of a cluster or tenant by its name."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SLOTS


def design_effect(
    counts: Floats,
    sums: Floats,
    *,
    samples: float,
    mean: float,
    variance: float,
    bounded: bool = True,
) -> float:
    """Return how many times as many requests are needed as of independent ones, at least 1.

    It is the variance of the mean by the slots, as a multiple of that of independent requests, and
    allows for how well so many slots tell it: Student's t in place of the normal deviate. So
    Wilson's interval at `samples` over the effect covers.

    Args:
        counts: Weight of the requests of each slot.
        sums: Weighted values of each slot.
        samples: Kish's effective number of requests.
        mean: Weighted mean of the values.
        variance: Of a value.
        bounded: Whether values lie in 0..1.

    Returns:
        The effect; 1 where a single slot has requests, which tells nothing.
    """
    groups = int(np.count_nonzero(counts))
    if groups < 2:
        return 1.0
    return effect_of_scatter(
        (sums - mean * counts) / counts.sum(),
        groups,
        samples=samples,
        mean=mean,
        variance=variance,
        bounded=bounded,
    )


def slot_scatters(counts: Floats, sums: Floats, means: Floats) -> tuple[Floats, list[int]]:
    """Return what each slot adds to the distance of a mean from itself, for many means at once.

    Args:
        counts: Weight of the requests of each slot, shape (means, `SLOTS`). A mean may have none:
            hours of more than a day ago have forgotten theirs.
        sums: Weighted values of each slot, likewise.
        means: Weighted means of the values.

    Returns:
        The scatter, shape (means, `SLOTS`), and how many slots have requests.
    """
    groups: list[int] = np.count_nonzero(counts, axis=1).tolist()
    totals = counts.sum(axis=1)[:, None]
    scatters = sums - means[:, None] * counts
    return np.divide(scatters, totals, out=np.zeros_like(scatters), where=totals > 0), groups


def effect_of_scatter(
    scatter: Floats,
    groups: int,
    *,
    samples: float,
    mean: float,
    variance: float,
    bounded: bool = True,
) -> float:
    """Return `design_effect` of a mean from a row of `slot_scatters`."""
    if groups < 2:
        return 1.0
    far = _far_values(mean, bounded)
    return _effect(scatter, groups=groups, samples=samples, variance=variance, far=far)


def design_effect_of_change(
    before: tuple[Floats, Floats],
    after: tuple[Floats, Floats],
    *,
    samples: float,
    mean: float,
    variance: float,
    bounded: bool = True,
) -> float:
    """Return the design effect of the change of a mean between two stretches of time, at least 1.

    What a cluster is like in both stretches cancels out: of questions that are asked over and over,
    each has a level of its own, which says nothing of a change. The requests of one moment stay
    dependent.

    Args:
        before: Weight of the requests and weighted values of each slot.
        after: The same later.
        samples: Of which independent requests would tell the change as well: 1 / (1/n + 1/m).
        mean: Mean over both.
        variance: Of a value.
        bounded: Whether values lie in 0..1.
    """
    groups = int(np.count_nonzero(before[0] + after[0]))
    if groups < 2:
        return 1.0
    return _effect(
        _scatter(*after) - _scatter(*before),
        groups=groups,
        samples=samples,
        variance=variance,
        far=_far_values(mean, bounded),
    )


def _far_values(mean: float, bounded: bool) -> float:
    return _FAR_VALUES * max(mean, 1 - mean) ** 2 if bounded else 0.0


def _scatter(counts: Floats, sums: Floats) -> Floats:
    """Return what each slot adds to the distance of the mean from itself."""
    total = float(counts.sum())
    return (sums - float(sums.sum()) / total * counts) / total


def _effect(scatter: Floats, *, groups: int, samples: float, variance: float, far: float) -> float:
    robust = float(scatter @ scatter) * groups / (groups - 1)
    independent = variance + far / samples
    if not independent:
        return 1.0
    ratio = (robust * samples + far / samples) / independent
    return max(1.0, ratio * (t975(groups - 1) / Z_95) ** 2)


def effective_samples(
    clusters: tuple[Floats, Floats],
    tenants: tuple[Floats, Floats] | None,
    *,
    samples: float,
    mean: float,
    variance: float,
    bounded: bool = True,
) -> float:
    """Return how many independent requests the mean is worth.

    Args:
        clusters: Counts and sums by slot of the cluster, as `design_effect` takes them.
        tenants: The same by slot of the tenant; None where the tenants are all that there are.
        samples: Kish's effective number of requests.
        mean: Weighted mean of the values.
        variance: Of a value.
        bounded: Whether values lie in 0..1.
    """
    keys = [clusters]
    if tenants is not None and np.count_nonzero(tenants[0]) >= LEAST_TENANTS:
        keys.append(tenants)
    return samples / max(
        design_effect(counts, sums, samples=samples, mean=mean, variance=variance, bounded=bounded)
        for counts, sums in keys
    )
