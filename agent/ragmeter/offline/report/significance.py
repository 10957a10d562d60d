"""Tests of a difference between two runs, paired and independent.

Paired: Fisher's randomisation test. If two runs are alike, the two scores of each pair could be
swapped; p is the share of all such swaps with a mean difference at least as large as the observed
one. It tests the mean that the report shows, assumes no distribution (scores lie in [0, 1], often
at its ends) and honours weights, because a pair keeps its own. Smucker, Allan and Carterette
(CIKM 2007) compare tests for retrieval: it agrees with the t-test, while Wilcoxon's signed-rank
test is about ranks and misleads about means. For binary scores it is McNemar's exact test.

Unpaired: the two intervals, each from its own sampling, are joined by the method of variance
estimates recovery (Zou and Donner 2008; for two Wilson intervals this is Newcombe's method 10).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from operator import getitem

from ragmeter.windows.estimators import Z_95, Interval

# Random sign assignments where not all can be tried: the error of p = .05 is then .002.
RANDOM_ASSIGNMENTS = 10_000

# Up to this many differing pairs every assignment is tried: 2**13 is below RANDOM_ASSIGNMENTS.
ALL_UP_TO = 13

# Beyond this many differing pairs p comes from the limiting normal distribution: the variance over
# all assignments is known exactly, so random assignments would add nothing.
MANY = 1_000

CHUNK = 8  # pairs whose 256 sums are made once: a byte of random bits picks one


def randomisation_p(differences: Sequence[int], seed: int) -> float:
    """Compute the two-sided p of Fisher's randomisation test.

    Args:
        differences: Weighted differences in whole units, so that equal sums compare equal.
        seed: Seed of the random assignments; unused where all assignments are tried.
    """
    sizes = sorted((abs(number) for number in differences if number), reverse=True)
    if not sizes:
        return 1.0
    seen = abs(sum(differences))
    if len(sizes) > MANY:
        scale = float(sizes[0])
        spread = math.sqrt(math.fsum((size / scale) ** 2 for size in sizes))
        return math.erfc(seen / scale / spread / math.sqrt(2))
    # The sum of an assignment is the sum of all sizes less twice the turned ones.
    whole = sum(sizes)
    tables = _sign_sums(sizes)
    if len(sizes) <= ALL_UP_TO:
        total = 1 << len(sizes)
        turned = (_signed_sum(number, tables) for number in range(total))
        return sum(abs(whole - 2 * turned_sum) >= seen for turned_sum in turned) / total
    rng = random.Random(seed)
    bits = CHUNK * len(tables)
    turned = (_signed_sum(rng.getrandbits(bits), tables) for _ in range(RANDOM_ASSIGNMENTS))
    extreme = sum(abs(whole - 2 * turned_sum) >= seen for turned_sum in turned)
    return (extreme + 1) / (RANDOM_ASSIGNMENTS + 1)  # counts the observed one, so p > 0


def _sign_sums(sizes: Sequence[int]) -> list[list[int]]:
    """List, for each chunk of pairs, the sum of every subset of it."""
    tables = []
    for start in range(0, len(sizes), CHUNK):
        sums = [0]
        for size in sizes[start : start + CHUNK]:
            sums += [size + other for other in sums]
        # The unused bits of a short last chunk select nothing.
        tables.append(sums * ((1 << CHUNK) // len(sums)))
    return tables


def _signed_sum(choice: int, tables: Sequence[list[int]]) -> int:
    picks = choice.to_bytes(len(tables), "little")
    return sum(map(getitem, tables, picks))


def independent_difference(first: Interval, second: Interval) -> tuple[float, float, float]:
    """Compute second - first, its lower and its upper limit for two independent runs."""
    difference = second.value - first.value
    below = math.hypot(second.value - second.lower, first.upper - first.value)
    above = math.hypot(second.upper - second.value, first.value - first.lower)
    return difference, difference - below, difference + above


def independent_p(difference: float, lower: float, upper: float) -> float:
    """Compute the p of a 95 % interval: below .05 if and only if the interval excludes 0."""
    half = difference - lower if difference > 0 else upper - difference
    if half <= 0:
        return 1.0 if difference == 0 else 0.0
    return math.erfc(Z_95 * abs(difference) / half / math.sqrt(2))


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Adjust p values by Holm's method (1979).

    If results below .05 are called different, the chance of any false call is at most 5 %,
    whatever the dependence between the metrics.
    """
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted = [0.0] * len(values)
    least = 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = least
    return adjusted
