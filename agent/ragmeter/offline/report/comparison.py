"""Statistical comparison of each run with the first: paired and independent tests.

Runs that answered the same questions are compared question by question (`paired`); other runs
are independent samples (`unpaired`).

`significance` has the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragmeter.core.arithmetic import value_units, weight_units
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.offline.report.significance import (
    adjust_holm,
    independent_difference,
    independent_p,
    randomisation_p,
)
from ragmeter.windows.estimators import Interval
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import COUNTS, DEFAULT_STRATUM, NO_SUMS, ScoreSums, StratumSums

ALPHA = 0.05
# Share of the smaller run's scores that need a partner: with fewer, a paired test would discard
# most of the evidence, and the few common ids may be chance.
LEAST_SHARE = 0.5

ComparisonMethod = Literal["paired", "unpaired", "constant", "other_instrument", "nothing"]


@dataclass(frozen=True, slots=True)
class _ScorePair:
    """Scores of one question in two runs; `probability` is that of both being sampled."""

    first: float
    second: float
    probability: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of one run with the first run in one series.

    Without a test the numbers are None (the difference of `constant` is 0). That holds for the
    methods `constant` (equal scores for every question, or a single value), `other_instrument`
    (another judge or model than in the first run) and `nothing` (a run has no score).

    Args:
        run: Index of the compared run in the report.
        difference: Mean of the compared run less mean of the first, over scored traces.
        p: p of this test alone.
        adjusted: p adjusted for all tests of the report.
    """

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
    """Compare every later run with the first, and adjust the p of all tests together.

    Args:
        runs: Each run with its series; the first is the baseline.
        same_draw: True where pairs share the trace id, which one hash samples alike in both
            runs; False where the two runs are sampled independently.
        seed: Seed of the randomisation tests.
    """
    comparisons: list[RunComparison] = []
    for number, (run, series) in enumerate(runs[1:], start=1):
        others = {(s.metric, s.scorer, s.fingerprint): s for s in series}
        scorers = {(s.metric, s.scorer) for s in series if len(s.scores)}
        for first in runs[0][1]:
            second = others.get((first.metric, first.scorer, first.fingerprint))
            base = RunComparison(
                run=number,
                metric=first.metric,
                scorer=first.scorer,
                fingerprint=first.fingerprint,
                method="nothing",
            )
            if not len(first.scores) or second is None or not len(second.scores):
                if len(first.scores) and (first.metric, first.scorer) in scorers:
                    base = replace(base, method="other_instrument")
                comparisons.append(base)
            else:
                comparisons.append(
                    _compare_series(
                        base=base,
                        first=(runs[0][0], first),
                        second=(run, second),
                        same_draw=same_draw,
                        seed=seed,
                    )
                )
    tested = [item for item in comparisons if item.p is not None]
    adjusted = dict(
        zip(map(id, tested), adjust_holm([item.p or 0.0 for item in tested]), strict=True)
    )
    return [replace(item, adjusted=adjusted.get(id(item))) for item in comparisons]


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
        mean = _mean_difference(pairs, first[1])
        turns = [
            weight_units(q.probability) * (value_units(q.second) - value_units(q.first))
            for q in pairs
        ]
        return replace(
            base,
            method="paired",
            pairs=len(pairs),
            p=randomisation_p(turns, seed),
            difference=mean.value,
            lower=mean.lower,
            upper=mean.upper,
        )
    first_interval, second_interval = first[1].plain, second[1].plain
    if first_interval is None or second_interval is None:  # a series without countable scores
        return base
    difference, lower, upper = independent_difference(first_interval, second_interval)
    return replace(
        base,
        method="unpaired",
        pairs=len(pairs),
        p=independent_p(difference, lower, upper),
        difference=difference,
        lower=lower,
        upper=upper,
    )


def _pair_scores(
    first_run: ScoredRun,
    first: RunSeries,
    second_run: ScoredRun,
    second: RunSeries,
    same_draw: bool,
) -> list[_ScorePair]:
    """Pair scores by key, in the order of the first run.

    A question asked several times in a run counts once, with the mean of its scores.
    """
    first_scores = _by_key(first_run, first)
    second_scores = _by_key(second_run, second)
    pairs = []
    for key, (first_value, probability) in first_scores.items():
        if key in second_scores:
            second_value, second_probability = second_scores[key]
            both = (
                min(probability, second_probability)
                if same_draw
                else probability * second_probability
            )
            pairs.append(_ScorePair(first_value, second_value, both))
    return pairs


def _count_paired(side: tuple[ScoredRun, RunSeries], other: tuple[ScoredRun, RunSeries]) -> int:
    """Count the scores of a side whose question the other side has scored, repeats included."""
    paired_keys = {other[0].keys[index] for index in other[1].scores.keys} - {None}
    return sum(side[0].keys[index] in paired_keys for index in side[1].scores.keys)


def _by_key(run: ScoredRun, series: RunSeries) -> Mapping[str, tuple[float, float]]:
    """Compute (mean, probability) by key, both weighted by the inverse of the probability."""
    sums: dict[str, list[float]] = {}
    scores = series.scores
    for index, value, probability in zip(
        scores.keys, scores.values, scores.probabilities, strict=True
    ):
        key = run.keys[index]
        if key is not None:
            sum_ = sums.setdefault(key, [0.0, 0.0, 0])
            sum_[0] += value / probability
            sum_[1] += 1 / probability
            sum_[2] += 1
    return {key: (wy / w, min(1.0, n / w)) for key, (wy, w, n) in sums.items()}


def _mean_difference(pairs: Sequence[_ScorePair], series: RunSeries) -> Interval:
    """Estimate the weighted mean of the differences.

    That of graded scores has the t interval. Most differences of a yes or no are 0, and a sample
    may lack the few that are not: theirs has the interval of a mean between -1 and 1.
    """
    sums = NO_SUMS
    for pair in pairs:
        y = value_units(pair.second) - value_units(pair.first)
        sums = sums.plus(StratumSums.of_scores(weight_units(pair.probability), y, y * y))
    cell = ScoreSums([0] * len(COUNTS), {DEFAULT_STRATUM: sums})
    if series.spec.kind == "ratio":
        return estimate_interval(cell, -1.0, 1.0)
    interval = estimate_interval(cell, None, None)
    if series.spec.high is None:
        return interval
    reach = series.spec.high - series.spec.low
    return interval._replace(lower=max(-reach, interval.lower), upper=min(reach, interval.upper))


def describe_difference(item: RunComparison, good: str | None) -> str:
    """Describe a comparison: `better`, `worse`, or why neither can be said.

    With a `good` of None a difference is described as `higher` or `lower`.
    """
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
