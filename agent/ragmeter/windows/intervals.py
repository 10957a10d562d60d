"""Estimate a series from its sums, stratified or not, with the help of the cheap score or without.

The estimate with that help cuts the traffic by class of the cheap score, where the plain one cuts
it by sampling stratum. Series are plain; the help is for the number of a question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ragmeter.core.arithmetic import VALUE_BITS, WEIGHT_ONE
from ragmeter.metrics.labelled import PEOPLE_STRATUM
from ragmeter.windows.estimators import Cell, Interval, mean_interval
from ragmeter.windows.sums import ScoreSums, StratumKey, StratumSums

# Expected scores below which a class of the cheap score or another cell joins its neighbour: the
# limits of fewer are so wide that a cell of its own costs more width than it saves. A class pays
# sooner, since its scores are alike.
_MIN_CLASS = 3.0
_MIN_CELL = 6.0

# Scores of the rarer kind (say, of bad answers) for each class of the cheap score, and the most
# classes: more of them cost width, and the cheap score tells hardly more by then.
_RARE_PER_CLASS = 8.0
_MAX_CLASSES = 5

# The same for traces drawn from slices of the cheap score (`ragmeter.sampling.slices`): of every
# class about as many are drawn as its part of the traffic, so that more classes cost less. With 30
# labels of RAGTruth the interval is .86 as wide as that of a uniform draw, with 8 a class .90.
_RARE_PER_SLICED_CLASS = 4.0


def estimate_interval(
    sums: ScoreSums,
    low: float | None,
    high: float | None,
    assisted: bool = False,
    *,
    process: bool = False,
    dependence: float = 1.0,
) -> Interval:
    """Estimate the mean of a series over all traffic.

    The estimate is of what was scored; `estimators.widen_for_missing` widens it by what was not.

    Args:
        sums: Sums with at least one scored trace, with strata or without.
        low: Least possible value, None if unbounded.
        high: Greatest possible value, None if unbounded.
        assisted: Cut the traffic by the cheap score.
        process: Infer about the process behind the traffic even where a draw of ours chose what was
            scored. Comparisons need it: two finite populations always differ.
        dependence: How many traces are worth one independent one, where the estimate is about the
            process.
    """
    if sums.strata:
        parts = [(StratumKey.parse(name), part) for name, part in sums.parts().items()]
        # where every trace is judged, the judge's scores are as built-in ones: about the process
        drawn = any(key.stratum and part.w != part.n * WEIGHT_ONE for key, part in parts)
        finite = drawn and not process
        cells = _sample_cells(parts=parts, low=low, high=high, assisted=assisted, finite=finite)
        if dependence > 1 and not finite:
            cells = [cell._replace(effective=cell.effective / dependence) for cell in cells]
        return mean_interval(cells, low, high, _sizes_known_from(parts, finite))
    n = sums.n
    y = sums.y
    spread = (n * sums.yy - y * y) / (n * (n - 1) << (2 * VALUE_BITS)) if n > 1 else 0.0
    cell = Cell(size=n, n=n, effective=n / dependence, mean=y / (n << VALUE_BITS), variance=spread)
    return mean_interval([cell], low, high)


_KeyedSums = Sequence[tuple[StratumKey, StratumSums]]


def _sizes_known_from(parts: _KeyedSums, finite: bool) -> float:
    """Return how many traces of equal weight tell the sizes of the strata and classes.

    Known are those of the traces that came: of a process they are a sample, and of all traffic
    where an earlier sampler or a local model chose them. So that is their number (Kish's) over the
    part of the traffic that is not among them (double sampling for stratification, Cochran,
    Sampling Techniques, 12.2).
    """
    size = squares = 0.0
    for key, part in parts:
        size += part.size / WEIGHT_ONE
        squares += part.size / WEIGHT_ONE * key.stands_for
    number = size * size / squares if squares else 1.0
    rest = 1 - number / size if finite and size else 1.0
    return number / rest if rest > 1e-9 else math.inf


def _sample_cells(
    parts: _KeyedSums, low: float | None, high: float | None, assisted: bool, finite: bool
) -> list[Cell]:
    """Cut the traffic of a series into cells with enough scores each.

    Cells are joined by the number of scores that their draw lets expect, not by the number there
    is: otherwise a small stratum would be dissolved just when few of it were drawn, and the
    estimate would lean towards the others.

    Args:
        parts: Sums by stratum with at least one scored trace.
        low: Least possible value, None if unbounded.
        high: Greatest possible value, None if unbounded.
        assisted: Cut the traffic by the cheap score.
        finite: Infer about all traffic, not about the process behind it.
    """
    expected = [part.size / WEIGHT_ONE * 2.0**-key.octave for key, part in parts]
    scale = sum(part.n for _, part in parts) / (sum(expected) or 1.0)
    rows = [
        _Part(key, part, number * scale)
        for (key, part), number in zip(parts, expected, strict=True)
    ]
    most = _count_classes(rows, low, high) if assisted else 1
    if most > 1:
        groups = _join_small(_group(rows, _class_order), _MIN_CLASS, most)
    else:
        groups = _join_small(_group(rows, lambda row: row.key.stratum), _MIN_CELL)
    cells = [
        cell
        for group in groups
        for cell in _join_small(_group(group, lambda row: row.key.octave), _MIN_CELL)
    ]
    return [_make_cell(cell, finite) for cell in cells]


class _Part(NamedTuple):
    """Sums of a stratum and class with the number of scores that their draw lets expect."""

    key: StratumKey
    sums: StratumSums
    expected: float


def _class_order(row: _Part) -> int:
    return -1 if row.key.cheap is None else row.key.cheap


def _count_classes(rows: Sequence[_Part], low: float | None, high: float | None) -> int:
    """Return the number of classes of the cheap score to cut the traffic into.

    It grows with the number of scores of the rarer kind, those near the bound that fewer are near;
    graded scores count in proportion. A cheap score of two values makes two classes in any case.
    """
    if low is None or high is None:
        return 1
    w = sum(row.sums.w for row in rows)
    n = sum(row.sums.n for row in rows)
    mean = sum(row.sums.wy for row in rows) / (w << VALUE_BITS)
    share = (mean - low) / (high - low)
    sliced = any(row.key.stratum == PEOPLE_STRATUM for row in rows)
    rare = _RARE_PER_SLICED_CLASS if sliced else _RARE_PER_CLASS
    number = 1 + int(n * min(share, 1 - share) / rare)
    if len({row.key.cheap for row in rows} - {None}) == 2:
        return 2
    return min(_MAX_CLASSES, number)


def _group(rows: Iterable[_Part], key: Callable[[_Part], Any]) -> list[list[_Part]]:
    """Group parts by a property, in its order."""
    groups: dict[Any, list[_Part]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [groups[name] for name in sorted(groups)]


def _join_small(
    groups: list[list[_Part]], least: float, most: float = math.inf
) -> list[list[_Part]]:
    """Join neighbours until each group expects `least` scores and has one, and `most` are left."""
    expected = [sum([row.expected for row in group]) for group in groups]
    scored = [any(row.sums.n for row in group) for group in groups]
    while len(groups) > 1:
        small = [at for at, number in enumerate(expected) if number < least or not scored[at]]
        if small:
            at = min(small, key=expected.__getitem__)
            if at == len(groups) - 1 or (at and expected[at - 1] < expected[at + 1]):
                at -= 1
        elif len(groups) > most:
            at = min(range(len(groups) - 1), key=lambda i: expected[i] + expected[i + 1])
        else:
            break
        groups[at : at + 2] = [groups[at] + groups[at + 1]]
        expected[at : at + 2] = [expected[at] + expected[at + 1]]
        scored[at : at + 2] = [scored[at] or scored[at + 1]]
    return groups


def _make_cell(parts: Sequence[_Part], finite: bool) -> Cell:
    """Return the cell of some parts.

    Where the draw was rare for a part of the traffic, the sample may hold hardly any of it, and its
    own weights then look even. So scores count for no more than their expected weights let them:
    by Kish's formula with the size of a part over the scores expected of it as each one's weight.
    """
    whole = StratumSums._make(map(sum, zip(*[row.sums for row in parts], strict=True)))
    sums = whole.applied()
    effective = whole.kish
    if len({row.key.octave for row in parts}) > 1:
        size = sum(row.sums.size for row in parts)
        squares = sum(row.sums.size**2 / row.expected for row in parts if row.sums.size)
        evenness = size * size / squares / sum(row.expected for row in parts)
        effective = min(effective, max(1.0, sums.n * evenness))
    sampled = min(1.0, effective * WEIGHT_ONE / sums.size) if finite else 0.0
    return Cell(
        size=sums.size / WEIGHT_ONE,
        n=sums.n,
        effective=effective,
        mean=sums.mean,
        variance=sums.variance,
        sampled=sampled,
        applied=whole.w / (whole.w + whole.not_applicable),
    )
