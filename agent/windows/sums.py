"""The additive sums of one metric by one scorer: what a bucket holds and a window adds up.

Per stratum there are 14 sums: over all eligible traces N and SF (their cheap scores f), over the
scored ones, with w = 1/probability, n w w2 wy wf w2y w2yy y f yy ff yf. Almost all scores have
w = 1 and no cheap score beside them; those need only n, y and yy, from which the other sums
follow, so a cell keeps them apart (`n`, `y`, `yy`) and full blocks only for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.windows.exact import WEIGHT_ONE

__all__ = ["DEFAULT_STRATUM", "FIELDS", "STATE_NAMES", "Cell", "add_scored", "empty_sums"]

FIELDS = (
    "N",
    "SF",
    "n",
    "w",
    "w2",
    "wy",
    "wf",
    "w2y",
    "w2yy",
    "y",
    "f",
    "yy",
    "ff",
    "yf",
)
"""Order of a stratum's sums, all whole numbers: N and n count, y and f are in value units,
w in weight units, products in the products of their units (yy: value units squared)."""

DEFAULT_STRATUM = ""

STATE_NAMES = ("scored", "not_applicable", "sampled_out", "unscored", "shed")


def empty_sums() -> list[int]:
    return [0] * len(FIELDS)


def add_scored(
    sums: list[int], w: int, y: int, yy: int, n: int = 1, f: int = 0, ff: int = 0, yf: int = 0
) -> None:
    """Add n scored traces of equal weight w; y, yy, f, ff, yf are their sums. N and SF are the
    business of the caller: they count traces that were not scored, too."""
    ww = w * w
    sums[2] += n
    sums[3] += n * w
    sums[4] += n * ww
    sums[5] += w * y
    sums[6] += w * f
    sums[7] += ww * y
    sums[8] += ww * yy
    sums[9] += y
    sums[10] += f
    sums[11] += yy
    sums[12] += ff
    sums[13] += yf


class Cell:
    """State counts and sums of one (metric, scorer) in one bucket or window.

    `strata` maps a stratum's name to its 14 sums and is None where all weights are 1. N of the
    default stratum is not stored: it is what is eligible less the N of the named strata.
    """

    __slots__ = ("n", "not_applicable", "sampled_out", "shed", "strata", "unscored", "y", "yy")

    def __init__(self) -> None:
        self.not_applicable = self.sampled_out = self.unscored = self.shed = 0
        self.n = self.y = self.yy = 0
        self.strata: dict[str, list[int]] | None = None

    @property
    def scored(self) -> int:
        if self.strata is None:
            return self.n
        return self.n + sum(sums[2] for sums in self.strata.values())

    @property
    def seen(self) -> int:
        """Traces in any state."""
        return self.scored + self.not_applicable + self.sampled_out + self.unscored + self.shed

    def states(self) -> dict[str, int]:
        return {
            "scored": self.scored,
            "not_applicable": self.not_applicable,
            "sampled_out": self.sampled_out,
            "unscored": self.unscored,
            "shed": self.shed,
        }

    def add(self, other: Cell) -> None:
        self.not_applicable += other.not_applicable
        self.sampled_out += other.sampled_out
        self.unscored += other.unscored
        self.shed += other.shed
        self.n += other.n
        self.y += other.y
        self.yy += other.yy
        if other.strata is not None:
            self._combine(other.strata, 1)

    def subtract(self, other: Cell) -> None:
        """Exactly undo `add`."""
        self.not_applicable -= other.not_applicable
        self.sampled_out -= other.sampled_out
        self.unscored -= other.unscored
        self.shed -= other.shed
        self.n -= other.n
        self.y -= other.y
        self.yy -= other.yy
        if other.strata is not None:
            self._combine(other.strata, -1)

    def _combine(self, strata: dict[str, list[int]], sign: int) -> None:
        mine = self.strata if self.strata is not None else {}
        for name, sums in strata.items():
            old = mine.get(name)
            if old is None:
                old = empty_sums()
            new = [a + sign * b for a, b in zip(old, sums, strict=True)]
            # N, SF and n at zero mean that nothing is left: every other sum is then zero as well.
            if new[0] or new[1] or new[2]:
                mine[name] = new
            else:
                mine.pop(name, None)
        self.strata = mine or None

    def copy(self) -> Cell:
        new = Cell()
        new.add(self)
        return new

    def sums(self) -> list[Sequence[int]]:
        """The 14 sums of each stratum, the default one first."""
        strata = self.strata or {}
        default = list(strata.get(DEFAULT_STRATUM, ())) or empty_sums()
        if self.n:
            add_scored(default, WEIGHT_ONE, self.y, self.yy, self.n)
        named = [strata[name] for name in sorted(strata) if name != DEFAULT_STRATUM]
        eligible = self.scored + self.sampled_out + self.unscored + self.shed
        default[0] = eligible - sum(sums[0] for sums in named)
        return [default, *named] if default[0] else [*named]
