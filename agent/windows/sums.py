"""Additive sums of one metric by one scorer: what a bucket stores and a window adds up.

Almost all scores have weight 1 and belong to no sampling stratum; for those the seven `COUNTS`
suffice. The rest is kept by stratum in the 16 sums of `FIELDS`. A stratum's size is counted when
its traces arrive and its results when a scorer answers, so late or lost results bend no share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, sub

from ragmeter.core.arithmetic import MAX_VALUE, VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoreState

# Sums of a stratum, all whole numbers. N and SF (sum of cheap scores f) are over all its traces,
# weighted by the inverse of the upstream probability alone: what a trace stands for before our own
# draw. The next 12 are over scored traces with weight w = 1/inclusion probability; n counts, y and
# f are in value units, w in weight units, products in the products of their units (yy: value units
# squared). wn and wu are the weights of drawn traces that were not applicable or got no value.
FIELDS = (
    *("N", "SF", "n", "w", "w2", "wy", "wf"),
    *("w2y", "w2yy", "y", "f", "yy", "ff", "yf"),
    *("wn", "wu"),
)
_NOT_APPLICABLE, _NO_VALUE = 14, 15

# Indices of sums that count traces whatever their result: N, SF, wn and wu.
_TRAFFIC_FIELDS = (0, 1, _NOT_APPLICABLE, _NO_VALUE)

# Indices of sums that contain the cheap score; with zeros there the plain estimate is left.
CHEAP_FIELDS = (1, 6, 10, 12, 13)

# Numbers of a series; n, y and yy are over the scores of weight 1 outside any stratum.
COUNTS = ("not_applicable", "sampled_out", "unscored", "shed", "n", "y", "yy")
WIDTH = len(COUNTS)

# The stratum of scores that no draw of ours selected. Its N is the weight of what was scored in it.
DEFAULT_STRATUM = ""

# Ends the name of the part of a stratum without a cheap score. Where the built-in scorer has no
# value a judge mostly has none either, and the F of the others must not stand for those traces.
WITHOUT_CHEAP = "-"

# Precedes the probability class in a stratum's name: `low:3` was drawn at about 2**-3.
RATE_CLASS_SEPARATOR = ":"

STATE_NAMES = ("scored", "not_applicable", "sampled_out", "unscored", "shed")

StrataSums = dict[str, list[int]]  # sums in the order of FIELDS by name of stratum


def split_stratum(name: str) -> tuple[str, int]:
    """Split a stratum's name into stratum and probability class: `low:3-` is ("low-", 3)."""
    stratum, separator, octave = name.removesuffix(WITHOUT_CHEAP).partition(RATE_CLASS_SEPARATOR)
    end = WITHOUT_CHEAP if name.endswith(WITHOUT_CHEAP) else ""
    return stratum + end, int(octave) if separator and octave.isdigit() else 0


def stratum_key(stratum: str, cheap: float | None) -> str:
    """Return the name under which a stratum is summed; traces without a cheap score go apart."""
    if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
        return stratum + WITHOUT_CHEAP
    return stratum


def empty_sums() -> list[int]:
    """Return the sums of a stratum without traces."""
    return [0] * len(FIELDS)


def add_scored(
    sums: list[int], w: int, y: int, yy: int, n: int = 1, f: int = 0, ff: int = 0, yf: int = 0
) -> None:
    """Add n scored traces of equal weight to `sums`, in place.

    N and SF are left to the caller, since they also count traces that were not scored.

    Args:
        sums: Sums in the order of `FIELDS`.
        w: Weight of each trace in weight units.
        y: Sum of the scores in value units; `f` is that of the cheap scores.
        yy: Sum of squared scores in value units squared; `ff` and `yf` likewise.
        n: Number of traces.
        f: Sum of the cheap scores.
        ff: Sum of squared cheap scores.
        yf: Sum of products of score and cheap score.
    """
    ww = w * w
    values = (n, n * w, n * ww, w * y, w * f, ww * y, ww * yy, y, f, yy, ff, yf)
    sums[2:14] = map(add, sums[2:14], values)


def add_sums(first: list[int], second: list[int]) -> list[int]:
    """Add two lists of numbers element by element; the shorter one is filled up with zeros."""
    if len(first) < len(second):
        first, second = second, first
    return [*map(add, first, second), *first[len(second) :]]


def subtract_sums(whole: list[int], part: list[int]) -> list[int]:
    """Undo `add_sums`; `part` is no longer than `whole`."""
    return [*map(sub, whole, part), *whole[len(part) :]]


def add_strata(first: StrataSums | None, second: StrataSums) -> StrataSums:
    """Return a new mapping with the sums of both; neither argument is changed."""
    new = dict(first or {})
    for name, sums in second.items():
        new[name] = add_sums(new[name], sums) if name in new else sums
    return new


def subtract_strata(whole: StrataSums, part: StrataSums) -> StrataSums:
    """Undo `add_strata`; strata that become empty are left out."""
    new = dict(whole)
    for name, sums in part.items():
        left = subtract_sums(new[name], sums)
        if any(left):
            new[name] = left
        else:
            del new[name]
    return new


def add_stratum_traces(
    strata: StrataSums, stratum: str, probability: float, cheaps: Sequence[float | None]
) -> None:
    """Count traces of one stratum in its N and SF, in place.

    Args:
        strata: Sums by stratum.
        stratum: Name as `stratum_key` gives it.
        probability: Upstream inclusion probability of the traces, in (0, 1].
        cheaps: Cheap score of each trace; all None if the stratum has none.
    """
    w = weight_units(probability)
    sums = strata.get(stratum)
    if sums is None:
        sums = strata[stratum] = empty_sums()
    sums[0] += w * len(cheaps)
    if not stratum.endswith(WITHOUT_CHEAP):
        sums[1] += w * sum([round(cheap * VALUE_ONE) for cheap in cheaps if cheap is not None])


def add_stratum_result(sums: list[int], score: Score, state: ScoreState) -> None:
    """Add the result of a drawn trace to the sums of its stratum, in place.

    Args:
        sums: Sums in the order of `FIELDS`.
        score: The result; an invalid probability counts as 1, so that a broken scorer cannot
            stop the sums.
        state: The state to count it under.
    """
    probability = score.probability
    w = weight_units(probability if 0 < probability <= 1 else 1.0)
    if state is ScoreState.SCORED and score.value is not None:
        y = round(score.value * VALUE_ONE)
        cheap = score.cheap
        if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
            add_scored(sums, w, y, y * y)
        else:
            f = round(cheap * VALUE_ONE)
            add_scored(sums, w, y, y * y, f=f, ff=f * f, yf=y * f)
    elif state is ScoreState.NOT_APPLICABLE:
        sums[_NOT_APPLICABLE] += w
    else:
        sums[_NO_VALUE] += w


class ScoreSums:
    """State counts and sums of one (metric, scorer), for reading.

    Args:
        counts: The numbers of `COUNTS`, which become attributes.
        strata: Sums in the order of `FIELDS` by name of stratum; None or empty without strata.
    """

    __slots__ = (*COUNTS, "strata")

    def __init__(self, counts: Sequence[int], strata: Mapping[str, Sequence[int]] | None) -> None:
        self.not_applicable, self.sampled_out, self.unscored, self.shed = counts[:4]
        self.n, self.y, self.yy = counts[4:]
        self.strata = strata

    @classmethod
    def total(cls, cells: Iterable[ScoreSums]) -> ScoreSums:
        """Return the sum of `cells`."""
        counts, strata = [0] * WIDTH, None
        for cell in cells:
            counts = [a + getattr(cell, name) for a, name in zip(counts, COUNTS, strict=True)]
            if cell.strata:
                strata = add_strata(strata, {k: list(v) for k, v in cell.strata.items()})
        return cls(counts, strata)

    @property
    def scored(self) -> int:
        """The number of scored traces, strata included."""
        if not self.strata:
            return self.n
        return self.n + sum(sums[2] for sums in self.strata.values())

    @property
    def kish(self) -> float:
        """Kish's effective number (sum w)**2 / sum w**2 of scored traces."""
        w = w2 = float(self.n)
        for sums in (self.strata or {}).values():
            w += sums[3] / WEIGHT_ONE
            w2 += sums[4] / (WEIGHT_ONE * WEIGHT_ONE)
        return w * w / w2 if w2 else 0.0

    @property
    def has_cheap(self) -> bool:
        """True if some stratum has cheap scores beside the values."""
        return any(not name.endswith(WITHOUT_CHEAP) for name in self.strata or () if name)

    def states(self) -> dict[str, int]:
        """Return the number of traces by state, in the order of `STATE_NAMES`."""
        return {name: getattr(self, name) for name in STATE_NAMES}

    def join_traffic(self, whole: ScoreSums | None) -> ScoreSums:
        """Return these sums with the strata sizes of `whole` added.

        Traces are counted under a scorer's plain name, results of a version under the version's.
        """
        if whole is None or not whole.strata:
            return self
        strata = dict(self.strata or {})
        for name, sums in whole.strata.items():
            own = list(strata.get(name, ())) or empty_sums()
            for index in _TRAFFIC_FIELDS:
                own[index] += sums[index]
            if name and any(own):
                strata[name] = own
        return ScoreSums([getattr(self, name) for name in COUNTS], strata)

    def sums(self) -> dict[str, list[int]]:
        """Return new lists of sums by stratum, the default stratum first, the rest by name.

        Strata without a trace that the metric applies to are left out. Applicability is only known
        of drawn traces, so N and SF are cut by the share of those that it applied to.
        """
        by_stratum: dict[str, list[int]] = {}
        default = list((self.strata or {}).get(DEFAULT_STRATUM, ())) or empty_sums()
        if self.n:
            add_scored(default, WEIGHT_ONE, self.y, self.yy, self.n)
        default[0] = default[3]
        if default[2]:
            by_stratum[DEFAULT_STRATUM] = default
        for name in sorted(self.strata or ()):
            if name == DEFAULT_STRATUM:
                continue
            sums = list((self.strata or {})[name])
            w, wn = sums[3], sums[_NOT_APPLICABLE]
            if sums[0] == 0:  # state from before there were strata, or from another version
                sums[0] = w
            if wn:
                sums[:2] = (sums[0] * w // (w + wn), sums[1] * w // (w + wn))
            if sums[0]:
                by_stratum[name] = sums
        return by_stratum

    def unscored_share(self) -> float | None:
        """Return the weighted share of traces that should have a value and have none.

        Returns:
            The share (0..1) of what was drawn, that is, neither left out by sampling nor not
            applicable; None if nothing was drawn.
        """
        lost = total = 0.0
        for name, sums in self.sums().items():
            drawn = sums[3] + sums[_NO_VALUE]
            if name and drawn:
                total += sums[0]
                lost += sums[0] * sums[_NO_VALUE] / drawn
        if total and self.strata:
            total += (self.strata.get(DEFAULT_STRATUM) or empty_sums())[3] + self.n * WEIGHT_ONE
            return lost / total
        drawn = self.scored + self.unscored + self.shed
        return (self.unscored + self.shed) / drawn if drawn else None

    def without(self, part: ScoreSums) -> ScoreSums | None:
        """Return these sums less `part`; None if nothing is left or `part` is not a part."""
        counts = [getattr(self, name) - getattr(part, name) for name in COUNTS]
        mine, theirs = (
            {name: list(sums) for name, sums in (cell.strata or {}).items()}
            for cell in (self, part)
        )
        if min(counts) < 0 or theirs.keys() - mine.keys():
            return None
        strata = subtract_strata(mine, theirs)
        return ScoreSums(counts, strata or None) if strata or any(counts) else None
