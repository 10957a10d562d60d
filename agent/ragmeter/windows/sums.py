"""Additive sums of one metric by one scorer: what a bucket stores and a window adds up.

Almost all scores have weight 1 and belong to no sampling stratum; for those the seven `COUNTS`
suffice. The rest is kept by stratum in `StratumSums`. A stratum's size is counted when its traces
arrive and its results when a scorer answers, so late or lost results bend no share. Who estimates
with the help of a cheap score of 0 or 1 names its class in the stratum, by `stratum_key`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import add, mul, sub
from typing import NamedTuple

from ragmeter.core.arithmetic import MAX_VALUE, VALUE_BITS, VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoreState

# Numbers of a series; n, y and yy are over the scores of weight 1 outside any stratum.
COUNTS = ("not_applicable", "sampled_out", "unscored", "shed", "n", "y", "yy")
WIDTH = len(COUNTS)

# The stratum of scores that no draw of ours selected. Its size is the weight of what was scored.
DEFAULT_STRATUM = ""

# Ends the name of the part of a stratum without a cheap score. Where the built-in scorer has no
# value a judge mostly has none either, so those traces are a class of their own.
WITHOUT_CHEAP = "-"

# Precedes the probability class in a stratum's name: `low:3` was drawn at about 2**-3.
RATE_CLASS_SEPARATOR = ":"

# Precedes the class of the probability with which an earlier sampler kept the traces: `low:3/13`.
UPSTREAM_CLASS_SEPARATOR = "/"

# Classes of that probability for each halving of it.
_UPSTREAM_CLASSES = 4

# Precedes the class of the cheap score: `low:3|2`.
CHEAP_CLASS_SEPARATOR = "|"

# Upper ends of the classes of a cheap score: six for scores from 0 to 1, two more for grades up to
# 3. A 0/1 score has two classes.
_CHEAP_EDGES = (0.2, 0.4, 0.6, 0.8, 0.95, 1.5, 2.5)

STATE_NAMES = ("scored", "not_applicable", "sampled_out", "unscored", "shed")


class StratumKey(NamedTuple):
    """The parts of a stratum's name.

    Args:
        stratum: Why its traces are drawn as often as they are (`low`), "" if no draw selected them.
        octave: Its traces were drawn with a probability of about 2**-octave.
        cheap: Class of the cheap score; None for traces without a cheap score.
        upstream: Class of the probability with which an earlier sampler kept its traces, 0 for all.
    """

    stratum: str
    octave: int = 0
    cheap: int | None = None
    upstream: int = 0

    @classmethod
    def parse(cls, name: str) -> StratumKey:
        """Split a name: `low:3/13|2` is ("low", 3, 2, 13)."""
        name, _, cheap = name.removesuffix(WITHOUT_CHEAP).partition(CHEAP_CLASS_SEPARATOR)
        name, _, upstream = name.partition(UPSTREAM_CLASS_SEPARATOR)
        stratum, _, octave = name.partition(RATE_CLASS_SEPARATOR)
        return cls(
            stratum,
            int(octave) if octave.isdigit() else 0,
            int(cheap) if cheap.isdigit() else None,
            int(upstream) if upstream.isdigit() else 0,
        )

    @property
    def stands_for(self) -> float:
        """How many traces each of its traces stands for, at most 1.2 times too many."""
        return math.exp2(self.upstream / _UPSTREAM_CLASSES)


def upstream_stratum(name: str, probability: float) -> str:
    """Return the name of a stratum of traces that an earlier sampler kept with a probability.

    The class of the probability is rounded down: to the nearest, the sizes of strata and classes,
    which are then estimates, would look more certain than they are.
    """
    if probability >= 1:
        return name
    halvings = _UPSTREAM_CLASSES * -math.log2(probability)
    return f"{name}{UPSTREAM_CLASS_SEPARATOR}{max(0, math.ceil(halvings - 1e-9))}"


def stratum_key(stratum: str, cheap: float | None) -> str:
    """Return the name under which a result of a stratum is summed, by class of the cheap score."""
    if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
        return stratum + WITHOUT_CHEAP
    return f"{stratum}{CHEAP_CLASS_SEPARATOR}{bisect_right(_CHEAP_EDGES, cheap)}"


class StratumSums(NamedTuple):
    """The whole-number sums of one stratum.

    `size` is over all its traces, weighted by the inverse of the upstream probability alone: what a
    trace stands for before our own draw. The next eight are over scored traces with weight
    w = 1 / inclusion probability: `n` counts, scores y are in value units, w in weight units,
    products in the products of their units (`yy`: value units squared).
    `not_applicable` and `no_value` are the weights of drawn traces without a value.
    """

    size: int = 0
    n: int = 0
    w: int = 0
    w2: int = 0
    wy: int = 0
    w2y: int = 0
    w2yy: int = 0
    y: int = 0
    yy: int = 0
    not_applicable: int = 0
    no_value: int = 0

    @classmethod
    def load(cls, saved: Sequence[int]) -> StratumSums:
        """Restore saved sums.

        Raises:
            ValueError: Wrong number of sums.
        """
        if len(saved) != len(cls._fields):
            raise ValueError("wrong number of sums")
        return cls._make(saved)

    @classmethod
    def of_scores(cls, w: int, y: int, yy: int, n: int = 1) -> StratumSums:
        """Return the sums of n scored traces of equal weight; their `size` is counted elsewhere.

        Args:
            w: Weight of each trace in weight units.
            y: Sum of the scores in value units.
            yy: Sum of squared scores in value units squared.
            n: Number of traces.
        """
        ww = w * w
        return cls(0, n, n * w, n * ww, w * y, ww * y, ww * yy, y, yy)

    @classmethod
    def of_result(cls, score: Score, state: ScoreState) -> StratumSums:
        """Return the sums of the result of one drawn trace, counted under `state`.

        An invalid probability counts as 1, so that a broken scorer cannot stop the sums.
        """
        probability = score.probability
        w = weight_units(probability if 0 < probability <= 1 else 1.0)
        if state is ScoreState.SCORED and score.value is not None:
            y = round(score.value * VALUE_ONE)
            return cls.of_scores(w, y, y * y)
        if state is ScoreState.NOT_APPLICABLE:
            return cls(not_applicable=w)
        return cls(no_value=w)

    @classmethod
    def of_columns(cls, weights: Sequence[int], values: Sequence[int]) -> StratumSums:
        """Return the sums of scored traces: the weight and the score of each, in their units."""
        weighted = list(map(mul, weights, values))
        return cls(
            n=len(weights),
            w=sum(weights),
            w2=sum(map(mul, weights, weights)),
            wy=sum(weighted),
            w2y=sum(map(mul, weights, weighted)),
            w2yy=sum(map(mul, weighted, weighted)),
            y=sum(values),
            yy=sum(map(mul, values, values)),
        )

    def plus(self, other: StratumSums) -> StratumSums:
        """Return the sums of both."""
        return StratumSums._make(map(add, self, other))

    def minus(self, other: StratumSums) -> StratumSums:
        """Return these sums without `other`."""
        return StratumSums._make(map(sub, self, other))

    def applied(self) -> StratumSums:
        """Return the sums with the size of the traffic that the metric applies to.

        Applicability is known of drawn traces only; their share that it applied to stands for all.
        """
        if not self.not_applicable:
            return self
        return self._replace(size=self.size * self.w // (self.w + self.not_applicable))

    @property
    def mean(self) -> float:
        """The weighted mean of the scores, of which there is one at least."""
        return self.wy / (self.w << VALUE_BITS)

    @property
    def kish(self) -> float:
        """Kish's effective number of scores, (sum w)**2 / sum w**2 (Survey Sampling, 1965)."""
        return self.w * self.w / self.w2

    @property
    def variance(self) -> float:
        """The linearised (Hajek) variance of the mean times `kish`, unbiased; 0 for one score."""
        if self.n < 2:
            return 0.0
        # differences are taken on whole numbers, so nothing cancels
        w = self.w
        w2 = self.w2
        wy = self.wy
        spread = w * w * self.w2yy - 2 * w * wy * self.w2y + wy * wy * w2
        return spread / ((w * w * w2) << (2 * VALUE_BITS)) * self.n / (self.n - 1)


NO_SUMS = StratumSums()
StrataSums = dict[str, StratumSums]


def add_sums(first: list[int], second: list[int]) -> list[int]:
    """Add two lists of numbers element by element; the shorter one is filled up with zeros."""
    if len(first) < len(second):
        first, second = second, first
    return [*map(add, first, second), *first[len(second) :]]


def subtract_sums(whole: list[int], part: list[int]) -> list[int]:
    """Undo `add_sums`; `part` is no longer than `whole`."""
    return [*map(sub, whole, part), *whole[len(part) :]]


def add_strata(first: StrataSums | None, second: Mapping[str, StratumSums]) -> StrataSums:
    """Return a new mapping with the sums of both; neither argument is changed."""
    new = dict(first or {})
    for name, sums in second.items():
        new[name] = new[name].plus(sums) if name in new else sums
    return new


def subtract_strata(whole: StrataSums, part: Mapping[str, StratumSums]) -> StrataSums:
    """Undo `add_strata`; strata that become empty are left out."""
    new = dict(whole)
    for name, sums in part.items():
        left = new[name].minus(sums)
        if any(left):
            new[name] = left
        else:
            del new[name]
    return new


class ScoreSums:
    """State counts and sums of one (metric, scorer), for reading.

    Args:
        counts: The numbers of `COUNTS`, which become attributes.
        strata: Sums by name of stratum; None or empty without strata.
    """

    __slots__ = (*COUNTS, "strata")

    def __init__(self, counts: Sequence[int], strata: Mapping[str, StratumSums] | None) -> None:
        self.not_applicable, self.sampled_out, self.unscored, self.shed = counts[:4]
        self.n, self.y, self.yy = counts[4:]
        self.strata = strata

    @classmethod
    def total(cls, cells: Iterable[ScoreSums]) -> ScoreSums:
        """Return the sum of `cells`."""
        counts = [0] * WIDTH
        strata = None
        for cell in cells:
            counts = [a + getattr(cell, name) for a, name in zip(counts, COUNTS, strict=True)]
            if cell.strata:
                strata = add_strata(strata, cell.strata)
        return cls(counts, strata)

    @property
    def scored(self) -> int:
        """The number of scored traces, strata included."""
        if not self.strata:
            return self.n
        return self.n + sum(sums.n for sums in self.strata.values())

    @property
    def kish(self) -> float:
        """Kish's effective number (sum w)**2 / sum w**2 of scored traces."""
        w = w2 = float(self.n)
        for sums in (self.strata or {}).values():
            w += sums.w / WEIGHT_ONE
            w2 += sums.w2 / (WEIGHT_ONE * WEIGHT_ONE)
        return w * w / w2 if w2 else 0.0

    def states(self) -> dict[str, int]:
        """Return the number of traces by state, in the order of `STATE_NAMES`."""
        return {
            "scored": self.scored,
            "not_applicable": self.not_applicable,
            "sampled_out": self.sampled_out,
            "unscored": self.unscored,
            "shed": self.shed,
        }

    def join_traffic(self, whole: ScoreSums | None) -> ScoreSums:
        """Return these sums with the strata sizes of `whole` added.

        Traces are counted under a scorer's plain name, results of a version under the version's.
        """
        if whole is None or not whole.strata:
            return self
        traffic = {
            name: StratumSums(
                size=sums.size, not_applicable=sums.not_applicable, no_value=sums.no_value
            )
            for name, sums in whole.strata.items()
            if name and (sums.size or sums.not_applicable or sums.no_value)
        }
        strata = add_strata(dict(self.strata or {}), traffic)
        return ScoreSums([getattr(self, name) for name in COUNTS], strata)

    def parts(self) -> dict[str, StratumSums]:
        """Return the sums by stratum and class of the cheap score, the default stratum first."""
        strata = dict(self.strata or {})
        default = strata.pop(DEFAULT_STRATUM, NO_SUMS)
        if self.n:
            default = default.plus(StratumSums.of_scores(WEIGHT_ONE, self.y, self.yy, self.n))
        by_name = {DEFAULT_STRATUM: default._replace(size=default.w)} if default.n else {}
        for name, sums in sorted(strata.items()):
            # state from before there were strata, or from another version, has no size
            by_name[name] = sums if sums.size else sums._replace(size=sums.w)
        return by_name

    def sums(self) -> dict[str, StratumSums]:
        """Return the sums by stratum, over the classes of the cheap score.

        Strata without a trace that the metric applies to are left out.
        """
        by_stratum: dict[str, StratumSums] = {}
        for name, sums in self.parts().items():
            stratum = name.partition(CHEAP_CLASS_SEPARATOR)[0]
            by_stratum[stratum] = by_stratum.get(stratum, NO_SUMS).plus(sums)
        applied = {name: sums.applied() for name, sums in by_stratum.items()}
        return {name: sums for name, sums in applied.items() if sums.size}

    def unscored_share(self) -> float | None:
        """Return the weighted share of traces that should have a value and have none.

        Returns:
            The share (0..1) of what was drawn, that is, neither left out by sampling nor not
            applicable; None if nothing was drawn.
        """
        strata = self.strata or {}
        # most series lack no value, and a page asks for all of them
        lacks = strata and any(sums.no_value for sums in strata.values())
        if not (self.unscored or self.shed or lacks):
            return 0.0 if self.scored else None
        lost = total = 0.0
        for name, sums in self.sums().items() if strata else ():
            drawn = sums.w + sums.no_value
            if name and drawn:
                total += sums.size
                lost += sums.size * sums.no_value / drawn
        if total and self.strata:
            total += self.strata.get(DEFAULT_STRATUM, NO_SUMS).w + self.n * WEIGHT_ONE
            return lost / total
        drawn = self.scored + self.unscored + self.shed
        return (self.unscored + self.shed) / drawn if drawn else None

    def without(self, part: ScoreSums) -> ScoreSums | None:
        """Return these sums less `part`; None if nothing is left or `part` is not a part."""
        counts = [getattr(self, name) - getattr(part, name) for name in COUNTS]
        mine = dict(self.strata or {})
        theirs = part.strata or {}
        if min(counts) < 0 or theirs.keys() - mine.keys():
            return None
        strata = subtract_strata(mine, theirs)
        return ScoreSums(counts, strata or None) if strata or any(counts) else None
