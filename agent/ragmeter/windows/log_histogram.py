"""Latency histograms with logarithmic cells: 1 % relative error, exact merging and subtraction.

The mapping is DDSketch's (Masson, Rim, Lee, VLDB 2019): cell i holds the seconds in
(g**(i-1), g**i] with g = 1.01/0.99 and answers 2 g**i / (g + 1), at most 1 % from any of them.
All histograms share the cells of 1 ms to 1000 s, with one cell below (zero timings are legal) and
one above. Counts are whole-number sums of weights, so a total is the exact sum of its buckets.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from operator import add, or_, sub
from typing import NamedTuple

from ragmeter.core.arithmetic import WEIGHT_BITS, WEIGHT_ONE
from ragmeter.windows.estimators import Z_95

LOW, HIGH = 1e-3, 1e3
_RELATIVE_ERROR = 0.01
_LOG_G = math.log((1 + _RELATIVE_ERROR) / (1 - _RELATIVE_ERROR))
_INV = 1 / _LOG_G
# One less than the cell of LOW itself, so that every value above LOW gets a cell of its own kind.
_OFFSET = math.ceil(math.log(LOW) * _INV) - 1
HISTOGRAM_CELLS = math.ceil(math.log(HIGH) * _INV) - _OFFSET + 2
_VALUES = (
    LOW,
    *(
        2 * math.exp((i + _OFFSET) * _LOG_G) / (1 + math.exp(_LOG_G))
        for i in range(1, HISTOGRAM_CELLS - 1)
    ),
    HIGH,
)
# A dictionary of so few cells is smaller than its text.
_MAX_OPEN_CELLS = 4

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_log = math.log
_ceil = math.ceil


def cell_index(seconds: float) -> int:
    """Return the cell of a value, 0 to `HISTOGRAM_CELLS` - 1."""
    if seconds <= LOW:
        return 0
    if seconds >= HIGH:
        return HISTOGRAM_CELLS - 1
    return _ceil(_log(seconds) * _INV) - _OFFSET


def cell_value(cell: int) -> float:
    """Return the seconds that a cell stands for; the two end cells stand for their edge."""
    return _VALUES[cell]


class SparseLogHistogram:
    """The histogram of one bucket: a dictionary while it is written, JSON text once sealed.

    `n` is the number of samples, `w2` the sum of their squared weights. A sealed ten-minute bucket
    of a busy service has some 150 filled cells and takes about 1 kB.
    """

    __slots__ = ("_counts", "n", "w2")

    def __init__(self, n: int = 0, w2: int = 0, counts: dict[int, int] | None = None) -> None:
        self.n = n
        self.w2 = w2
        self._counts: dict[int, int] | bytes = {} if counts is None else counts

    def add(self, cells: Sequence[int], w: int = WEIGHT_ONE) -> None:
        """Add one sample of weight `w`, in weight units, to each of `cells`."""
        counts = self.counts()
        get = counts.get
        for cell in cells:
            counts[cell] = get(cell, 0) + w
        self.n += len(cells)
        self.w2 += len(cells) * w * w

    def counts(self) -> dict[int, int]:
        """Return the writable weight by cell; opens a sealed histogram."""
        if isinstance(self._counts, bytes):
            self._counts = dict(self.items())
        return self._counts

    def items(self) -> Iterable[tuple[int, int]]:
        """Iterate over (cell, weight) without opening a sealed histogram."""
        if not isinstance(self._counts, bytes):
            return self._counts.items()
        return cell_weights(*json.loads(self._counts))

    @classmethod
    def total(cls, parts: Sequence[SparseLogHistogram]) -> SparseLogHistogram:
        """Return a new histogram with the sum of several."""
        counts: dict[int, int] = {}
        get = counts.get
        for part in parts:
            own = part._counts
            for cell, w in own.items() if type(own) is dict else part.items():
                counts[cell] = get(cell, 0) + w
        return cls(sum([part.n for part in parts]), sum([part.w2 for part in parts]), counts)

    def merge(self, other: SparseLogHistogram) -> None:
        """Add another histogram to this one, in place."""
        self.n += other.n
        self.w2 += other.w2
        counts = self.counts()
        if not counts:
            counts.update(other.items())
            return
        get = counts.get
        for cell, w in other.items():
            counts[cell] = get(cell, 0) + w

    def content(self) -> tuple[int, list[int], list[int]]:
        """Return (shift, cells in order, counts); a cell's weight is its count << shift.

        The shift makes the numbers small in the usual case that all weights are 1.
        """
        if isinstance(self._counts, bytes):
            shift, cells, counts = json.loads(self._counts)
            return shift, cells, counts
        cells = sorted(self._counts)
        counts = [self._counts[cell] for cell in cells]
        if reduce(or_, counts, 0) & (WEIGHT_ONE - 1):
            return 0, cells, counts
        return WEIGHT_BITS, cells, [count >> WEIGHT_BITS for count in counts]

    def seal(self) -> None:
        """Turn the counts into text, unless they are small; a later `add` opens it again."""
        if not isinstance(self._counts, bytes) and len(self._counts) > _MAX_OPEN_CELLS:
            self._counts = _encode(self.content()).encode("ascii")


def cell_weights(shift: int, cells: list[int], counts: list[int]) -> Iterable[tuple[int, int]]:
    """Iterate over (cell, weight) of `SparseLogHistogram.content`."""
    return zip(cells, [count << shift for count in counts], strict=True)


class QuantileLimits(NamedTuple):
    """A quantile in seconds with 95 % limits; `upper` is None if too few samples lie beyond it."""

    quantile: float
    value: float
    lower: float
    upper: float | None


class LogHistogram:
    """The dense histogram of a window: `n` samples, `w2` the sum of their squared weights."""

    __slots__ = ("_first", "_last", "counts", "n", "w2")

    def __init__(self) -> None:
        self.counts = [0] * HISTOGRAM_CELLS
        self.n = 0
        self.w2 = 0
        self._first, self._last = HISTOGRAM_CELLS - 1, 0  # the range of cells ever filled

    def add(self, seconds: float, w: int = WEIGHT_ONE) -> None:
        """Add one sample of weight `w` in weight units."""
        self.merge_sketch(SparseLogHistogram(1, w * w, {cell_index(seconds): w}))

    def merge(self, other: LogHistogram, sign: int = 1) -> None:
        """Add another histogram to this one, in place; subtract it if `sign` is -1."""
        filled = slice(other._first, other._last + 1)
        change = add if sign > 0 else sub
        self.counts[filled] = map(change, self.counts[filled], other.counts[filled])
        self.n += sign * other.n
        self.w2 += sign * other.w2
        self._first = min(self._first, other._first)
        self._last = max(self._last, other._last)

    def merge_sketch(self, sketch: SparseLogHistogram, sign: int = 1) -> None:
        """Add the histogram of a bucket, in place; subtract it if `sign` is -1."""
        counts = self.counts
        first = self._first
        last = self._last
        for cell, w in sketch.items():
            counts[cell] += sign * w
            if cell < first:
                first = cell
            if cell > last:
                last = cell
        self._first, self._last = first, last
        self.n += sign * sketch.n
        self.w2 += sign * sketch.w2

    def quantile(self, q: float) -> float | None:
        """Return the seconds at level `q` (0..1), None without samples.

        The answer is the smallest value with that share of the weight at or below it.
        """
        return self._find_values([q], self._cumulative())[0] if self.n else None

    @property
    def effective(self) -> float:
        """Kish's effective number of samples, (sum w)**2 / sum w**2."""
        if not self.w2:
            return 0.0
        return float(sum(self.counts[self._first : self._last + 1]) ** 2 / self.w2)

    def limits(self, quantiles: Sequence[float], dependence: float = 1.0) -> list[QuantileLimits]:
        """Estimate quantiles with 95 % limits from at least one sample.

        Limits are at binomial ranks (Woodruff, JASA 1952) on Kish's effective number of samples
        over their dependence, widened by the 1 % of the cells.

        Args:
            quantiles: Levels between 0 and 1.
            dependence: How many samples are worth one independent one.

        Returns:
            Those of `quantiles` that have a sample beyond them, in the same order.
        """
        cumulative = self._cumulative()
        n = cumulative[-1] ** 2 / self.w2
        supported = [q for q in quantiles if n * (1 - q) >= 1 - 1e-9]
        n /= dependence
        levels = []
        for q in supported:
            half = Z_95 * math.sqrt(q * (1 - q) / n)
            levels += [max(0.0, q - half), q, min(1.0, q + half + 1 / n)]
        values = self._find_values(levels, cumulative)
        return [
            QuantileLimits(
                q,
                value,
                low / (1 + _RELATIVE_ERROR),
                # With fewer than five samples beyond it the limit is too low far too often: at
                # n = 50 that of p99 covers .31 to .54 instead of .975.
                high * (1 + _RELATIVE_ERROR) if n * (1 - q) >= 5 - 1e-9 else None,
            )
            for q, low, value, high in zip(
                supported, values[::3], values[1::3], values[2::3], strict=True
            )
        ]

    def _cumulative(self) -> list[int]:
        """Return running sums from the lowest cell ever filled to the highest."""
        return list(accumulate(self.counts[self._first : self._last + 1]))

    def _find_values(self, levels: Iterable[float], cumulative: list[int]) -> list[float]:
        # A hair below the rank: 0.95 * 20 must mean the 19th value although 0.95 is no binary
        # fraction. At least 1 unit, so that level 0 is the smallest filled cell.
        total = cumulative[-1] * (1 - 1e-12)
        return [
            _VALUES[self._first + bisect_left(cumulative, max(1, int(q * total)))] for q in levels
        ]
