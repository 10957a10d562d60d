"""Sequential detectors: the bucketed e-SR, always on, with a false-alarm rate set in time.

Each closed bucket becomes a standardised distance z from the baseline. With y = (z - tol) / 3, cut
to [-1, 10], and five bets l, a Shiryaev-Roberts e-detector keeps M_l = (M_l + 1)(1 + l y) and
alarms when the mean of the M_l reaches H. As long as E[y] <= 0 given the past, M less the number of
steps is a supermartingale: at most one false alarm per H steps is expected, for any distribution,
any number of samples per bucket, and however often somebody looks. H counts buckets, so the promise
is one in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BETS", "Esr", "threshold"]

BETS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Small bets find small shifts late, large ones large shifts early; none needs tuning."""

CLIP = 3.0
"""1 + l y must stay positive for l = 0.8: three standard errors below cost it four fifths of its
stake, and no bucket costs more."""

TOP = 10.0
"""The most that one freak bucket may count (30 standard errors): cutting above only lowers E[y]."""

Dumped = list[list[float]]


def threshold(seconds_per_alarm: float, width: float, streams: int) -> float:
    """H: steps of `width` seconds in the time of one false alarm, times the streams that share
    the allowance (each gets an equal part of it)."""
    return seconds_per_alarm / width * max(1, streams)


class Esr:
    """The mean of e-SRs over `edges` statistics, each up or, if `two_sided`, up and down.

    An average of e-detectors is an e-detector, so one threshold serves one edge or five, one side
    or two.
    """

    __slots__ = ("_down", "_up", "statistic")

    def __init__(self, edges: int = 1, two_sided: bool = False) -> None:
        self._up = [[0.0] * len(BETS) for _ in range(edges)]
        self._down = [[0.0] * len(BETS) for _ in range(edges)] if two_sided else []
        self.statistic = 0.0

    def step(self, zs: Iterable[tuple[float, float]]) -> float:
        """Take in one closed bucket: (z, tol) per edge, z > 0 in the direction that is watched.
        Returns the statistic, to be held against H."""
        total = 0.0
        down = self._down
        for edge, (z, tol) in enumerate(zs):
            total += _bet(self._up[edge], (z - tol) / CLIP)
            if down:
                total += _bet(down[edge], (-z - tol) / CLIP)
        self.statistic = total / (len(BETS) * (len(self._up) + len(down)))
        return self.statistic

    def reset(self) -> None:
        """Start anew, after an alarm or with a new baseline."""
        for stake in (*self._up, *self._down):
            stake[:] = [0.0] * len(BETS)
        self.statistic = 0.0

    def strongest(self) -> tuple[int, int]:
        """(edge, direction +1 or -1) that contributes most."""
        best, found = -1.0, (0, 1)
        for sign, side in ((1, self._up), (-1, self._down)):
            for edge, stake in enumerate(side):
                if sum(stake) > best:
                    best, found = sum(stake), (edge, sign)
        return found

    def dump(self) -> Dumped:
        """All state, as JSON keeps it: floats written in full come back bit for bit."""
        return [[self.statistic, float(bool(self._down))], *map(list, self._up + self._down)]

    @classmethod
    def load(cls, state: Sequence[Sequence[float]]) -> Esr:
        """Back from `dump`. ValueError if it is not one."""
        (statistic, two_sided), *stakes = state
        edges = len(stakes) // 2 if two_sided else len(stakes)
        new = cls(edges, bool(two_sided))
        if not edges or len(stakes) % (2 if two_sided else 1):
            raise ValueError("a detector's state has a part for each edge and side")
        if any(len(stake) != len(BETS) for stake in stakes):
            raise ValueError(f"a detector's state has {len(BETS)} numbers per edge and side")
        new._up = [list(stake) for stake in stakes[:edges]]
        new._down = [list(stake) for stake in stakes[edges:]]
        new.statistic = statistic
        return new


def _bet(stake: list[float], y: float) -> float:
    """Move one mixture on; returns its sum. NaN loses the stake's growth and nothing else."""
    y = TOP if y > TOP else y if y > -1.0 else -1.0
    a, b, c, d, e = stake
    stake[0] = a = (a + 1.0) * (1.0 + 0.05 * y)
    stake[1] = b = (b + 1.0) * (1.0 + 0.1 * y)
    stake[2] = c = (c + 1.0) * (1.0 + 0.2 * y)
    stake[3] = d = (d + 1.0) * (1.0 + 0.4 * y)
    stake[4] = e = (e + 1.0) * (1.0 + 0.8 * y)
    return a + b + c + d + e
