"""How likely a difference as large as the one seen is, if there is none. Pure and seeded.

Paired: Fisher's randomisation test. If two runs are alike, each pair might as well have been the
other way round; the share of all such turns that give a mean difference at least as large is p.
It asks for the very mean that is shown, takes no distribution for granted (scores lie in [0, 1],
often at its ends) and honours weights, for a pair keeps its own. Smucker, Allan and Carterette
(CIKM 2007) compare it with its rivals for retrieval: it and the t-test agree; Wilcoxon's
signed-rank test asks about ranks and misleads about means. Of yes and no it is McNemar's exact
test.

Unpaired: two intervals, each honouring its own sampling, joined by the method of variance estimates
recovery (Zou and Donner 2008; of two Wilson intervals that is Newcombe's method 10).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from operator import getitem

from agent.windows.estimators import Interval, Z

__all__ = ["TURNS", "holm", "joined", "joined_p", "randomisation"]

TURNS = 10_000
"""Random turns where not all can be tried: the error of p = .05 is then .002."""

ALL_UP_TO = 13
"""Pairs that differ, up to which every turn is tried: 2**13 are no more than `TURNS`."""

MANY = 1_000
"""Pairs that differ, beyond which the share is taken from the normal law that it tends to: the
variance over all turns is known exactly, and more turns would buy nothing."""

CHUNK = 8  # pairs whose 256 sums are made once: a byte of random bits picks one


def randomisation(differences: Sequence[int], seed: int) -> float:
    """The two-sided p of weighted differences in whole units (so that equal sums are equal)."""
    sizes = sorted((abs(number) for number in differences if number), reverse=True)
    if not sizes:
        return 1.0
    seen = abs(sum(differences))
    if len(sizes) > MANY:
        scale = float(sizes[0])
        spread = math.sqrt(math.fsum((size / scale) ** 2 for size in sizes))
        return math.erfc(seen / scale / spread / math.sqrt(2))
    # a turn's sum is that of all, less twice what is turned
    whole, tables = sum(sizes), _tables(sizes)
    if len(sizes) <= ALL_UP_TO:
        total = 1 << len(sizes)
        turned = (_turned(number, tables) for number in range(total))
        return sum(abs(whole - 2 * part) >= seen for part in turned) / total
    rng, bits = random.Random(seed), CHUNK * len(tables)
    turned = (_turned(rng.getrandbits(bits), tables) for _ in range(TURNS))
    extreme = sum(abs(whole - 2 * part) >= seen for part in turned)
    return (extreme + 1) / (TURNS + 1)  # what was seen is a turn, too: p is never 0


def _tables(sizes: Sequence[int]) -> list[list[int]]:
    """For each eight pairs the sum of every choice of them."""
    tables = []
    for start in range(0, len(sizes), CHUNK):
        sums = [0]
        for size in sizes[start : start + CHUNK]:
            sums += [size + other for other in sums]
        # where the last chunk is short its unused bits choose nothing
        tables.append(sums * ((1 << CHUNK) // len(sums)))
    return tables


def _turned(choice: int, tables: Sequence[list[int]]) -> int:
    picks = choice.to_bytes(len(tables), "little")
    return sum(map(getitem, tables, picks))


def joined(first: Interval, second: Interval) -> tuple[float, float, float]:
    """(second - first, its lower and its upper limit) of two runs that have nothing in common."""
    difference = second.value - first.value
    below = math.hypot(second.value - second.lower, first.upper - first.value)
    above = math.hypot(second.upper - second.value, first.value - first.lower)
    return difference, difference - below, difference + above


def joined_p(difference: float, lower: float, upper: float) -> float:
    """The p that belongs to such an interval: below .05 if and only if it leaves 0 out."""
    half = difference - lower if difference > 0 else upper - difference
    if half <= 0:
        return 1.0 if difference == 0 else 0.0
    return math.erfc(Z * abs(difference) / half / math.sqrt(2))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p (1979), in the order given: with those below .05 called different, the
    chance of even one false call is at most 5 %, however the metrics hang together."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted, least = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = least
    return adjusted
