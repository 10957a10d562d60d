"""How a run differs from the first one, metric by metric. Pure.

Where both answered the same questions the differences are taken question by question (`paired`),
else the two are independent samples (`unpaired`). `agent.report.chance` says which test and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.report.chance import holm, joined, joined_p, randomisation
from agent.report.run import Run, Series, history_variance
from agent.windows.estimators import Interval
from agent.windows.exact import units, weight
from agent.windows.intervals import interval_of
from agent.windows.stratified import history_of
from agent.windows.sums import COUNTS, DEFAULT_STRATUM, Cell, add_scored, empty_sums

__all__ = ["ALPHA", "Comparison", "Pair", "compared", "pairs_of", "verdict"]

ALPHA = 0.05
LEAST_SHARE = 0.5
"""Of the smaller run's scores, that have a partner: with fewer a paired test would throw most of
the evidence away, and the few ids in common may be chance."""

Method = Literal["paired", "unpaired", "constant", "other_instrument", "nothing"]


@dataclass(frozen=True, slots=True)
class Pair:
    """What two runs say of one question; `probability` is that of both being drawn."""

    first: float
    second: float
    probability: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Run number `run` against the first in one series. `difference` is second - first, of what was
    scored; `p` as tested, `adjusted` for all that the report tests. None where there is nothing to
    test: `constant` (both say the same, of every question or always), `other_instrument` (the
    judge or model is not the one of the first run), `nothing` (one has no score)."""

    run: int
    metric: str
    scorer: str
    fingerprint: str
    method: Method
    pairs: int = 0
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    adjusted: float | None = None


def compared(
    runs: Sequence[tuple[Run, Sequence[Series]]], same_draw: bool, seed: int
) -> list[Comparison]:
    """Every run after the first against it, and the p of all tests adjusted together.

    `same_draw`: pairs are the same trace id, which one hash has drawn in both; else two draws.
    """
    found: list[Comparison] = []
    for number, (run, series) in enumerate(runs[1:], start=1):
        others = {(s.metric, s.scorer, s.fingerprint): s for s in series}
        scorers = {(s.metric, s.scorer) for s in series if len(s.scores)}
        for first in runs[0][1]:
            second = others.get((first.metric, first.scorer, first.fingerprint))
            base = Comparison(number, first.metric, first.scorer, first.fingerprint, "nothing")
            if not len(first.scores) or second is None or not len(second.scores):
                if len(first.scores) and (first.metric, first.scorer) in scorers:
                    base = replace(base, method="other_instrument")
                found.append(base)
            else:
                found.append(_compared(base, (runs[0][0], first), (run, second), same_draw, seed))
    tested = [item for item in found if item.p is not None]
    adjusted = dict(zip(map(id, tested), holm([item.p or 0.0 for item in tested]), strict=True))
    return [replace(item, adjusted=adjusted.get(id(item))) for item in found]


def _compared(
    base: Comparison,
    first: tuple[Run, Series],
    second: tuple[Run, Series],
    same_draw: bool,
    seed: int,
) -> Comparison:
    values = {*first[1].scores.values, *second[1].scores.values}
    if len(values) == 1:
        return replace(base, method="constant", difference=0.0)
    pairs = pairs_of(*first, *second, same_draw)
    whole = len(pairs) == len(first[1].scores) == len(second[1].scores)
    if whole and all(pair.first == pair.second for pair in pairs):
        return replace(base, method="constant", pairs=len(pairs), difference=0.0)
    smaller, larger = sorted((first, second), key=lambda side: len(side[1].scores))
    partnered = _partnered(smaller, larger)
    if len(pairs) > 1 and partnered >= LEAST_SHARE * len(smaller[1].scores):
        found = _mean_difference(pairs, first[1])
        turns = [weight(q.probability) * (units(q.second) - units(q.first)) for q in pairs]
        return replace(
            base, method="paired", pairs=len(pairs), p=randomisation(turns, seed),
            difference=found.value, lower=found.lower, upper=found.upper,
        )  # fmt: skip
    one, two = first[1].plain, second[1].plain
    if one is None or two is None:  # a series without sums: no score of it could be counted
        return base
    difference, lower, upper = joined(one, two)
    return replace(
        base, method="unpaired", pairs=len(pairs), p=joined_p(difference, lower, upper),
        difference=difference, lower=lower, upper=upper,
    )  # fmt: skip


def pairs_of(
    first_run: Run, first: Series, second_run: Run, second: Series, same_draw: bool
) -> list[Pair]:
    """By key, in the order of the first run. A question asked several times in a run is one: the
    mean of its answers."""
    known = _by_key(first_run, first)
    others = _by_key(second_run, second)
    found = []
    for key, (value, probability) in known.items():
        if key in others:
            other, another = others[key]
            both = min(probability, another) if same_draw else probability * another
            found.append(Pair(value, other, both))
    return found


def _partnered(side: tuple[Run, Series], other: tuple[Run, Series]) -> int:
    """How many scores of a side are of a question that the other has a score of, too; those of a
    question that was asked several times are as many."""
    known = {other[0].keys[place] for place in other[1].scores.keys} - {None}
    return sum(side[0].keys[place] in known for place in side[1].scores.keys)


def _by_key(run: Run, series: Series) -> Mapping[str, tuple[float, float]]:
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


def _mean_difference(pairs: Sequence[Pair], series: Series) -> Interval:
    """The weighted mean of the differences by the estimator of every other mean here."""
    sums = empty_sums()
    for pair in pairs:
        y = units(pair.second) - units(pair.first)
        add_scored(sums, weight(pair.probability), y, y * y)
    counts = [0] * len(COUNTS)
    if all(pair.probability == 1 for pair in pairs):
        counts[4:] = [len(pairs), sums[9], sums[11]]
        cell = Cell(counts, None)
    else:
        sums[0] = sums[3]
        cell = Cell(counts, {DEFAULT_STRATUM: sums})
    low, high = series.spec.low, series.spec.high
    reach = None if high is None else high - low
    bottom = None if reach is None else -reach
    return interval_of(
        cell, False, bottom, reach, history_of(cell, history_variance(bottom, reach))
    )


def verdict(item: Comparison, good: str | None) -> str:
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
