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
Flags = NDArray[np.bool_]

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

# How much wider an interval is by the number of slots with requests, squared: Student's t in place
# of the normal deviate. A single slot tells nothing.
_WIDENING = np.array(
    [0.0, 0.0, *((t975(groups - 1) / Z_95) ** 2 for groups in range(2, SLOTS + 1))]
)


def find_slot(key: str) -> int:
    """Return the slot (0 to `SLOTS` - 1) of a cluster or tenant by its name."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SLOTS


def design_effects(
    counts: Floats,
    sums: Floats,
    *,
    samples: Floats,
    means: Floats,
    variances: Floats,
    bounded: Flags,
) -> Floats:
    """Return how many times as many requests are needed as of independent ones, at least 1.

    It is the variance of a mean by the slots, as a multiple of that of independent requests, and
    allows for how well so many slots tell it: Student's t in place of the normal deviate. So
    Wilson's interval at `samples` over the effect covers.

    Args:
        counts: Weight of the requests of each slot, shape (..., `SLOTS`). A mean may have none:
            hours of more than a day ago have forgotten theirs.
        sums: Weighted values of each slot, likewise.
        samples: Kish's effective number of requests of each mean, shape (...).
        means: Weighted means of the values.
        variances: Of a value.
        bounded: Whether values lie in 0..1.

    Returns:
        The effects, shape (...); 1 where a single slot has requests, which tells nothing.
    """
    groups = np.count_nonzero(counts, axis=-1)
    totals = counts.sum(axis=-1, keepdims=True)
    scatters = sums - means[..., None] * counts
    return _effects(
        np.divide(scatters, totals, out=np.zeros_like(scatters), where=totals > 0),
        groups,
        samples=samples,
        variances=variances,
        far=_far_values(means, bounded),
    )


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
    groups = np.count_nonzero(before[0] + after[0], axis=-1)
    effect = _effects(
        _scatter(*after) - _scatter(*before),
        groups,
        samples=np.float64(samples),
        variances=np.float64(variance),
        far=_far_values(np.float64(mean), bounded),
    )
    return float(effect)


def _far_values(means: Floats | np.float64, bounded: Flags | bool) -> Floats:
    return bounded * (_FAR_VALUES * np.maximum(means, 1 - means) ** 2)


def _scatter(counts: Floats, sums: Floats) -> Floats:
    """Return what each slot adds to the distance of the mean from itself."""
    total = float(counts.sum())
    return (sums - float(sums.sum()) / total * counts) / total


def _effects(
    scatters: Floats,
    groups: NDArray[np.intp],
    *,
    samples: Floats | np.float64,
    variances: Floats | np.float64,
    far: Floats,
) -> Floats:
    squares = (scatters[..., None, :] @ scatters[..., :, None])[..., 0, 0]
    robust = squares * groups / np.maximum(groups - 1, 1)
    far = far / samples
    independent = variances + far
    # without any variance there is no effect
    ratios = (robust * samples + far) / np.where(independent > 0, independent, np.inf)
    return np.asarray(np.fmax(1.0, ratios * _WIDENING[groups]))


def effective_samples(
    counts: Floats,
    sums: Floats,
    *,
    samples: Floats,
    means: Floats,
    variances: Floats,
    bounded: Flags,
) -> tuple[Floats, Floats]:
    """Return how many independent requests means are worth.

    Args:
        counts: Weight of the requests by slot of the cluster, and by slot of the tenant, shape
            (2, means, `SLOTS`).
        sums: Weighted values by slot, likewise.
        samples: Kish's effective number of requests of each mean.
        means: Weighted means of the values.
        variances: Of a value.
        bounded: Whether values lie in 0..1.

    Returns:
        What they are worth where the tenants are all that there are, and where they are a sample.
    """
    own, of_tenants = design_effects(
        counts, sums, samples=samples, means=means, variances=variances, bounded=bounded
    )
    many = np.count_nonzero(counts[1], axis=-1) >= LEAST_TENANTS
    return samples / own, samples / np.where(many, np.maximum(own, of_tenants), own)
