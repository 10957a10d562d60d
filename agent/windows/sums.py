"""Additive sums of one metric by one scorer: what a bucket stores and a window adds up.

The additive sums of one metric by one scorer: what a bucket holds and a window adds up.

Per stratum there are 16 sums: over all its traces N and SF (their cheap scores f), over the
scored ones, with w = 1/probability, n w w2 wy wf w2y w2yy y f yy ff yf, and the weights of those
that were drawn in vain: that turned out not to be applicable (wn), or got no value (wu). Almost
all scores have w = 1 and belong to no sampling stratum; those need only n, y and yy, from which
the other sums follow. So a series is 7 numbers (`COUNTS`), and strata are kept only for the rest.

Sums of what was drawn from a sampling stratum, with the cheap score of the same trace beside it.

What a stratum holds in all (N, SF) is counted when its traces arrive and weighted by the upstream
probability; what was found in it (n and the other sums) when a judge answers, weighted by the
whole inclusion probability. So results that come late, or never, bend no stratum's share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, sub

from ragmeter.core.arithmetic import MAX_VALUE, VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoreState

FIELDS = (
    *("N", "SF", "n", "w", "w2", "wy", "wf"),
    *("w2y", "w2yy", "y", "f", "yy", "ff", "yf"),
    *("wn", "wu"),
)
"""Order of a stratum's sums, all whole numbers: n counts, y and f are in value units, w in weight
units, products in the products of their units (yy: value units squared). N and SF are weighted by
the inverse of the upstream probability alone, which is what a trace stands for before our own draw.
"""

_TRACE_FIELDS = (0, 1)
"""The places of N and SF: known of every trace, scored or not."""

_NOT_APPLICABLE, _NO_VALUE = 14, 15
"""The places of wn and wu."""

CHEAP_FIELDS = (1, 6, 10, 12, 13)
"""The places of the sums that the cheap score is in: without them the plain estimate is left."""

COUNTS = ("not_applicable", "sampled_out", "unscored", "shed", "n", "y", "yy")
"""Order of a series' numbers; n, y and yy are over the scores of weight 1."""

WIDTH = len(COUNTS)

DEFAULT_STRATUM = ""
"""Of scores that no draw of ours has chosen. Its N is the weight of what was scored in it."""

WITHOUT_CHEAP = "-"
"""Ends the name of the part of a stratum that has no cheap score: where the built-in scorer cannot
say anything, a judge mostly cannot either, and an F of the others must not stand for it."""

RATE_CLASS_SEPARATOR = ":"
"""Before the class of probability in the name of a stratum: `low:3`, drawn at about 2**-3."""

STATE_NAMES = ("scored", "not_applicable", "sampled_out", "unscored", "shed")

StrataSums = dict[str, list[int]]
"""The sums by name of stratum."""


def split_stratum(name: str) -> tuple[str, int]:
    """("low-", 3) of `low:3-`: the stratum and its class of probability (0 where it has none)."""
    stratum, found, octave = name.removesuffix(WITHOUT_CHEAP).partition(RATE_CLASS_SEPARATOR)
    end = WITHOUT_CHEAP if name.endswith(WITHOUT_CHEAP) else ""
    return stratum + end, int(octave) if found and octave.isdigit() else 0


def empty_sums() -> list[int]:
    return [0] * len(FIELDS)


def add_scored(
    sums: list[int], w: int, y: int, yy: int, n: int = 1, f: int = 0, ff: int = 0, yf: int = 0
) -> None:
    """Add n scored traces of equal weight w; y, yy, f, ff, yf are their sums. N and SF are the
    business of the caller: they count traces that were not scored, too."""
    ww = w * w
    values = (n, n * w, n * ww, w * y, w * f, ww * y, ww * yy, y, f, yy, ff, yf)
    sums[2:14] = map(add, sums[2:14], values)


def add_sums(mine: list[int], other: list[int]) -> list[int]:
    """Number by number; the shorter list ends in zeros."""
    if len(mine) < len(other):
        mine, other = other, mine
    return [*map(add, mine, other), *mine[len(other) :]]


def subtract_sums(mine: list[int], other: list[int]) -> list[int]:
    """Undo `add_up`."""
    return [*map(sub, mine, other), *mine[len(other) :]]


def add_strata(mine: StrataSums | None, other: StrataSums) -> StrataSums:
    """A new mapping with both summed."""
    new = dict(mine or {})
    for name, sums in other.items():
        new[name] = add_sums(new[name], sums) if name in new else sums
    return new


def subtract_strata(mine: StrataSums, other: StrataSums) -> StrataSums:
    """Undo `add_strata`; an empty stratum disappears."""
    new = dict(mine)
    for name, sums in other.items():
        left = subtract_sums(new[name], sums)
        if any(left):
            new[name] = left
        else:
            del new[name]
    return new


class ScoreSums:
    """State counts and sums of one (metric, scorer), for reading."""

    __slots__ = (*COUNTS, "strata")

    def __init__(self, counts: Sequence[int], strata: Mapping[str, Sequence[int]] | None) -> None:
        self.not_applicable, self.sampled_out, self.unscored, self.shed = counts[:4]
        self.n, self.y, self.yy = counts[4:]
        self.strata = strata

    @property
    def scored(self) -> int:
        if not self.strata:
            return self.n
        return self.n + sum(sums[2] for sums in self.strata.values())

    def states(self) -> dict[str, int]:
        return {
            "scored": self.scored,
            "not_applicable": self.not_applicable,
            "sampled_out": self.sampled_out,
            "unscored": self.unscored,
            "shed": self.shed,
        }

    @property
    def has_cheap(self) -> bool:
        """Whether cheap scores lie beside the values."""
        return any(not name.endswith(WITHOUT_CHEAP) for name in self.strata or () if name)

    def joined(self, frame: ScoreSums | None) -> ScoreSums:
        """With the N and SF that `frame` has: traces are counted under the scorer's own name, what
        a version of it has found under the version's."""
        if frame is None or not frame.strata:
            return self
        strata = dict(self.strata or {})
        for name, sums in frame.strata.items():
            own = list(strata.get(name, ())) or empty_sums()
            for place in (*_TRACE_FIELDS, _NOT_APPLICABLE, _NO_VALUE):
                own[place] += sums[place]
            if name and any(own):
                strata[name] = own
        counts = [getattr(self, name) for name in COUNTS]
        return ScoreSums(counts, strata)

    def sums(self) -> dict[str, list[int]]:
        """The sums of each stratum that has traces the metric applies to, the default one first.

        Whether it applies to a trace that was not drawn nobody knows: N and SF are cut by the
        share of what was drawn that it did apply to.
        """
        found: dict[str, list[int]] = {}
        default = list((self.strata or {}).get(DEFAULT_STRATUM, ())) or empty_sums()
        if self.n:
            add_scored(default, WEIGHT_ONE, self.y, self.yy, self.n)
        default[0] = default[3]
        if default[2]:
            found[DEFAULT_STRATUM] = default
        for name in sorted(self.strata or ()):
            if name == DEFAULT_STRATUM:
                continue
            sums = list((self.strata or {})[name])
            w, wn = sums[3], sums[_NOT_APPLICABLE]
            if sums[0] == 0:  # counted before there were strata, or by another version
                sums[0] = w
            if wn:
                sums[:2] = (sums[0] * w // (w + wn), sums[1] * w // (w + wn))
            if sums[0]:
                found[name] = sums
        return found

    def unscored_share(self) -> float | None:
        """The weighted share of what should have a value and has none, of what was drawn (all that
        was neither left out by sampling nor not applicable). None where nothing was drawn."""
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

    def without(self, other: ScoreSums) -> ScoreSums | None:
        """What is left without a part of it; None where that is nothing."""
        counts = [getattr(self, name) - getattr(other, name) for name in COUNTS]
        mine = {name: list(sums) for name, sums in (self.strata or {}).items()}
        theirs = {name: list(sums) for name, sums in (other.strata or {}).items()}
        if min(counts) < 0 or theirs.keys() - mine.keys():
            return None  # no part of it
        strata = subtract_strata(mine, theirs)
        return ScoreSums(counts, strata or None) if strata or any(counts) else None

    @property
    def kish(self) -> float:
        """(sum w)^2 / sum w^2 of the scored ones: how many of equal weight would know as much."""
        w = w2 = float(self.n)
        for sums in (self.strata or {}).values():
            w += sums[3] / WEIGHT_ONE
            w2 += sums[4] / (WEIGHT_ONE * WEIGHT_ONE)
        return w * w / w2 if w2 else 0.0

    @classmethod
    def total(cls, cells: Iterable[ScoreSums]) -> ScoreSums:
        """Their sum."""
        counts, strata = [0] * WIDTH, None
        for cell in cells:
            counts = [a + getattr(cell, name) for a, name in zip(counts, COUNTS, strict=True)]
            if cell.strata:
                strata = add_strata(strata, {k: list(v) for k, v in cell.strata.items()})
        return cls(counts, strata)


def stratum_key(stratum: str, cheap: float | None) -> str:
    """The name that the sums of a stratum go by: those without a cheap score apart."""
    if cheap is None or not -MAX_VALUE <= cheap <= MAX_VALUE:
        return stratum + WITHOUT_CHEAP
    return stratum


def add_stratum_traces(
    strata: StrataSums, stratum: str, probability: float, cheaps: Sequence[float | None]
) -> None:
    """Count traces of one stratum and one upstream `probability`, with their cheap scores."""
    w = weight_units(probability)
    sums = strata.get(stratum)
    if sums is None:
        sums = strata[stratum] = empty_sums()
    sums[0] += w * len(cheaps)
    if not stratum.endswith(WITHOUT_CHEAP):
        sums[1] += w * sum([round(cheap * VALUE_ONE) for cheap in cheaps if cheap is not None])


def add_stratum_result(sums: list[int], score: Score, state: ScoreState) -> None:
    """Add what was found of a trace that was drawn."""
    probability = score.probability
    # a broken scorer's probability must not stop the sums; it counts as if everything was drawn
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
