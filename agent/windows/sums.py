"""The additive sums of one metric by one scorer: what a bucket holds and a window adds up.

Per stratum there are 14 sums: over all eligible traces N and SF (their cheap scores f), over the
scored ones, with w = 1/probability, n w w2 wy wf w2y w2yy y f yy ff yf. Almost all scores have
w = 1 and no cheap score beside them; those need only n, y and yy, from which the other sums
follow. So a series is 7 numbers (`COUNTS`), and full strata are kept only for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, sub

from agent.windows.exact import WEIGHT_ONE

__all__ = [
    "COUNTS",
    "DEFAULT_STRATUM",
    "FIELDS",
    "STATE_NAMES",
    "WIDTH",
    "Cell",
    "Strata",
    "add_scored",
    "add_strata",
    "add_up",
    "empty_sums",
    "subtract_strata",
    "take_away",
]

FIELDS = (
    *("N", "SF", "n", "w", "w2", "wy", "wf"),
    *("w2y", "w2yy", "y", "f", "yy", "ff", "yf"),
)
"""Order of a stratum's sums, all whole numbers: N and n count, y and f are in value units,
w in weight units, products in the products of their units (yy: value units squared)."""

COUNTS = ("not_applicable", "sampled_out", "unscored", "shed", "n", "y", "yy")
"""Order of a series' numbers; n, y and yy are over the scores of weight 1."""

WIDTH = len(COUNTS)

DEFAULT_STRATUM = ""

STATE_NAMES = ("scored", "not_applicable", "sampled_out", "unscored", "shed")

Strata = dict[str, list[int]]
"""The sums by name of stratum. N of the default stratum stays 0: it is what is eligible (all
but not_applicable) less the N of the named strata."""


def empty_sums() -> list[int]:
    return [0] * len(FIELDS)


def add_scored(
    sums: list[int], w: int, y: int, yy: int, n: int = 1, f: int = 0, ff: int = 0, yf: int = 0
) -> None:
    """Add n scored traces of equal weight w; y, yy, f, ff, yf are their sums. N and SF are the
    business of the caller: they count traces that were not scored, too."""
    ww = w * w
    values = (n, n * w, n * ww, w * y, w * f, ww * y, ww * yy, y, f, yy, ff, yf)
    sums[2:] = map(add, sums[2:], values)


def add_up(mine: list[int], other: list[int]) -> list[int]:
    """Number by number; the shorter list ends in zeros."""
    if len(mine) < len(other):
        mine, other = other, mine
    return [*map(add, mine, other), *mine[len(other) :]]


def take_away(mine: list[int], other: list[int]) -> list[int]:
    """Undo `add_up`."""
    return [*map(sub, mine, other), *mine[len(other) :]]


def add_strata(mine: Strata | None, other: Strata) -> Strata:
    """A new mapping with both summed."""
    new = dict(mine or {})
    for name, sums in other.items():
        new[name] = add_up(new[name], sums) if name in new else sums
    return new


def subtract_strata(mine: Strata, other: Strata) -> Strata:
    """Undo `add_strata`; an empty stratum disappears."""
    new = dict(mine)
    for name, sums in other.items():
        left = take_away(new[name], sums)
        # N, SF and n at zero mean that nothing is left: every other sum is then zero as well.
        if left[0] or left[1] or left[2]:
            new[name] = left
        else:
            del new[name]
    return new


class Cell:
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

    def sums(self) -> list[Sequence[int]]:
        """The 14 sums of each stratum with eligible traces, the default one first."""
        strata = self.strata or {}
        default = list(strata.get(DEFAULT_STRATUM, ())) or empty_sums()
        if self.n:
            add_scored(default, WEIGHT_ONE, self.y, self.yy, self.n)
        named = [strata[name] for name in sorted(strata) if name != DEFAULT_STRATUM]
        eligible = self.scored + self.sampled_out + self.unscored + self.shed
        default[0] = eligible - sum(sums[0] for sums in named)
        return [sums for sums in (default, *named) if sums[0]]

    @classmethod
    def total(cls, cells: Iterable[Cell]) -> Cell:
        """Their sum."""
        counts, strata = [0] * WIDTH, None
        for cell in cells:
            counts = [a + getattr(cell, name) for a, name in zip(counts, COUNTS, strict=True)]
            if cell.strata:
                strata = add_strata(strata, {k: list(v) for k, v in cell.strata.items()})
        return cls(counts, strata)
