"""Statistical comparison of each run with the first: paired and independent tests.

How likely a difference as large as the one seen is, if there is none. Pure and seeded.

Paired: Fisher's randomisation test. If two runs are alike, each pair might as well have been the
other way round; the share of all such turns that give a mean difference at least as large is p.
It asks for the very mean that is shown, takes no distribution for granted (scores lie in [0, 1],
often at its ends) and honours weights, for a pair keeps its own. Smucker, Allan and Carterette
(CIKM 2007) compare it with its rivals for retrieval: it and the t-test agree; Wilcoxon's
signed-rank test asks about ranks and misleads about means. Of yes and no it is McNemar's exact
test.

Unpaired: two intervals, each honouring its own sampling, joined by the method of variance estimates
recovery (Zou and Donner 2008; of two Wilson intervals that is Newcombe's method 10).

How a run differs from the first one, metric by metric. Pure.

Where both answered the same questions the differences are taken question by question (`paired`),
else the two are independent samples (`unpaired`). `ragmeter.offline.report.comparison` says which test and why.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import getitem
from typing import Literal

from ragmeter.core.arithmetic import value_units, weight_units
from ragmeter.offline.report.run import RunSeries, ScoredRun, history_variance
from ragmeter.windows.estimators import Z_95, Interval
from ragmeter.windows.intervals import estimate_history, estimate_interval
from ragmeter.windows.sums import COUNTS, DEFAULT_STRATUM, ScoreSums, add_scored, empty_sums

RANDOM_ASSIGNMENTS = 10_000
"""Random turns where not all can be tried: the error of p = .05 is then .002."""

ALL_UP_TO = 13
"""Pairs that differ, up to which every turn is tried: 2**13 are no more than `TURNS`."""

MANY = 1_000
"""Pairs that differ, beyond which the share is taken from the normal law that it tends to: the
variance over all turns is known exactly, and more turns would buy nothing."""

CHUNK = 8  # pairs whose 256 sums are made once: a byte of random bits picks one


def randomisation_p(differences: Sequence[int], seed: int) -> float:
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
    whole, tables = sum(sizes), _sign_sums(sizes)
    if len(sizes) <= ALL_UP_TO:
        total = 1 << len(sizes)
        turned = (_signed_sum(number, tables) for number in range(total))
        return sum(abs(whole - 2 * part) >= seen for part in turned) / total
    rng, bits = random.Random(seed), CHUNK * len(tables)
    turned = (_signed_sum(rng.getrandbits(bits), tables) for _ in range(RANDOM_ASSIGNMENTS))
    extreme = sum(abs(whole - 2 * part) >= seen for part in turned)
    return (extreme + 1) / (RANDOM_ASSIGNMENTS + 1)  # what was seen is a turn, too: p is never 0


def _sign_sums(sizes: Sequence[int]) -> list[list[int]]:
    """For each eight pairs the sum of every choice of them."""
    tables = []
    for start in range(0, len(sizes), CHUNK):
        sums = [0]
        for size in sizes[start : start + CHUNK]:
            sums += [size + other for other in sums]
        # where the last chunk is short its unused bits choose nothing
        tables.append(sums * ((1 << CHUNK) // len(sums)))
    return tables


def _signed_sum(choice: int, tables: Sequence[list[int]]) -> int:
    picks = choice.to_bytes(len(tables), "little")
    return sum(map(getitem, tables, picks))


def independent_difference(first: Interval, second: Interval) -> tuple[float, float, float]:
    """(second - first, its lower and its upper limit) of two runs that have nothing in common."""
    difference = second.value - first.value
    below = math.hypot(second.value - second.lower, first.upper - first.value)
    above = math.hypot(second.upper - second.value, first.value - first.lower)
    return difference, difference - below, difference + above


def independent_p(difference: float, lower: float, upper: float) -> float:
    """The p that belongs to such an interval: below .05 if and only if it leaves 0 out."""
    half = difference - lower if difference > 0 else upper - difference
    if half <= 0:
        return 1.0 if difference == 0 else 0.0
    return math.erfc(Z_95 * abs(difference) / half / math.sqrt(2))


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p (1979), in the order given: with those below .05 called different, the
    chance of even one false call is at most 5 %, however the metrics hang together."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted, least = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = least
    return adjusted


ALPHA = 0.05
LEAST_SHARE = 0.5
"""Of the smaller run's scores, that have a partner: with fewer a paired test would throw most of
the evidence away, and the few ids in common may be chance."""

ComparisonMethod = Literal["paired", "unpaired", "constant", "other_instrument", "nothing"]


@dataclass(frozen=True, slots=True)
class _ScorePair:
    """What two runs say of one question; `probability` is that of both being drawn."""

    first: float
    second: float
    probability: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Run number `run` against the first in one series. `difference` is second - first, of what was
    scored; `p` as tested, `adjusted` for all that the report tests. None where there is nothing to
    test: `constant` (both say the same, of every question or always), `other_instrument` (the
    judge or model is not the one of the first run), `nothing` (one has no score)."""

    run: int
    metric: str
    scorer: str
    fingerprint: str
    method: ComparisonMethod
    pairs: int = 0
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    adjusted: float | None = None


def compare_runs(
    runs: Sequence[tuple[ScoredRun, Sequence[RunSeries]]], same_draw: bool, seed: int
) -> list[RunComparison]:
    """Every run after the first against it, and the p of all tests adjusted together.

    `same_draw`: pairs are the same trace id, which one hash has drawn in both; else two draws.
    """
    found: list[RunComparison] = []
    for number, (run, series) in enumerate(runs[1:], start=1):
        others = {(s.metric, s.scorer, s.fingerprint): s for s in series}
        scorers = {(s.metric, s.scorer) for s in series if len(s.scores)}
        for first in runs[0][1]:
            second = others.get((first.metric, first.scorer, first.fingerprint))
            base = RunComparison(number, first.metric, first.scorer, first.fingerprint, "nothing")
            if not len(first.scores) or second is None or not len(second.scores):
                if len(first.scores) and (first.metric, first.scorer) in scorers:
                    base = replace(base, method="other_instrument")
                found.append(base)
            else:
                found.append(
                    _compare_series(base, (runs[0][0], first), (run, second), same_draw, seed)
                )
    tested = [item for item in found if item.p is not None]
    adjusted = dict(
        zip(map(id, tested), adjust_holm([item.p or 0.0 for item in tested]), strict=True)
    )
    return [replace(item, adjusted=adjusted.get(id(item))) for item in found]


def _compare_series(
    base: RunComparison,
    first: tuple[ScoredRun, RunSeries],
    second: tuple[ScoredRun, RunSeries],
    same_draw: bool,
    seed: int,
) -> RunComparison:
    values = {*first[1].scores.values, *second[1].scores.values}
    if len(values) == 1:
        return replace(base, method="constant", difference=0.0)
    pairs = _pair_scores(*first, *second, same_draw)
    whole = len(pairs) == len(first[1].scores) == len(second[1].scores)
    if whole and all(pair.first == pair.second for pair in pairs):
        return replace(base, method="constant", pairs=len(pairs), difference=0.0)
    smaller, larger = sorted((first, second), key=lambda side: len(side[1].scores))
    partnered = _count_paired(smaller, larger)
    if len(pairs) > 1 and partnered >= LEAST_SHARE * len(smaller[1].scores):
        found = _mean_difference(pairs, first[1])
        turns = [
            weight_units(q.probability) * (value_units(q.second) - value_units(q.first))
            for q in pairs
        ]
        return replace(
            base, method="paired", pairs=len(pairs), p=randomisation_p(turns, seed),
            difference=found.value, lower=found.lower, upper=found.upper,
        )  # fmt: skip
    one, two = first[1].plain, second[1].plain
    if one is None or two is None:  # a series without sums: no score of it could be counted
        return base
    difference, lower, upper = independent_difference(one, two)
    return replace(
        base, method="unpaired", pairs=len(pairs), p=independent_p(difference, lower, upper),
        difference=difference, lower=lower, upper=upper,
    )  # fmt: skip


def _pair_scores(
    first_run: ScoredRun,
    first: RunSeries,
    second_run: ScoredRun,
    second: RunSeries,
    same_draw: bool,
) -> list[_ScorePair]:
    """By key, in the order of the first run. A question asked several times in a run is one: the
    mean of its answers."""
    known = _by_key(first_run, first)
    others = _by_key(second_run, second)
    found = []
    for key, (value, probability) in known.items():
        if key in others:
            other, another = others[key]
            both = min(probability, another) if same_draw else probability * another
            found.append(_ScorePair(value, other, both))
    return found


def _count_paired(side: tuple[ScoredRun, RunSeries], other: tuple[ScoredRun, RunSeries]) -> int:
    """How many scores of a side are of a question that the other has a score of, too; those of a
    question that was asked several times are as many."""
    known = {other[0].keys[place] for place in other[1].scores.keys} - {None}
    return sum(side[0].keys[place] in known for place in side[1].scores.keys)


def _by_key(run: ScoredRun, series: RunSeries) -> Mapping[str, tuple[float, float]]:
    """(mean, probability) by key, both weighted by the inverse of the probability."""
    sums: dict[str, list[float]] = {}
    scores = series.scores
    for place, value, probability in zip(
        scores.keys, scores.values, scores.probabilities, strict=True
    ):
        key = run.keys[place]
        if key is not None:
            sum_ = sums.setdefault(key, [0.0, 0.0, 0])
            sum_[0] += value / probability
            sum_[1] += 1 / probability
            sum_[2] += 1
    return {key: (wy / w, min(1.0, n / w)) for key, (wy, w, n) in sums.items()}


def _mean_difference(pairs: Sequence[_ScorePair], series: RunSeries) -> Interval:
    """The weighted mean of the differences by the estimator of every other mean here."""
    sums = empty_sums()
    for pair in pairs:
        y = value_units(pair.second) - value_units(pair.first)
        add_scored(sums, weight_units(pair.probability), y, y * y)
    counts = [0] * len(COUNTS)
    if all(pair.probability == 1 for pair in pairs):
        counts[4:] = [len(pairs), sums[9], sums[11]]
        cell = ScoreSums(counts, None)
    else:
        sums[0] = sums[3]
        cell = ScoreSums(counts, {DEFAULT_STRATUM: sums})
    low, high = series.spec.low, series.spec.high
    reach = None if high is None else high - low
    bottom = None if reach is None else -reach
    return estimate_interval(
        cell, False, bottom, reach, estimate_history(cell, history_variance(bottom, reach))
    )


def describe_difference(item: RunComparison, good: str | None) -> str:
    """In a word or two: `better`, `worse` (`higher`, `lower` where neither is good), or why not."""
    if item.method == "nothing":
        return "not scored in both"
    if item.method == "other_instrument":
        return "another instrument"
    if item.method == "constant":
        return "always the same"
    if item.adjusted is None or item.adjusted >= ALPHA or not item.difference:
        return "no difference shown"
    higher = item.difference > 0
    if good is None:
        return "higher" if higher else "lower"
    return "better" if higher == (good == "higher") else "worse"
