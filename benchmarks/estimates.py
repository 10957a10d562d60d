"""Coverage, width and saving of the shipped estimates, beside the plain method that others use.

Run with `python -m benchmarks.estimates [--runs 200] [--only TABLE]`; every cell is seeded. Prints
a JSON object a row. The truth is the mean label of all traces of the simulated window; "plain" is
Wilson's interval on the judged traces, whatever chose them.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from benchmarks.populations import DESIGNS, GRADED, Sample, draw, graded, labels
from ragmeter.windows.estimators import (
    WILSON_BELOW,
    Interval,
    mean_interval,
    rate_interval,
    sample_variance,
    shrink_slope,
    stratum_moments,
    widen_for_missing,
    wilson_interval,
)
from ragmeter.windows.sums import CHEAP_FIELDS

__all__ = ["coverage", "graded_scores", "main", "missing"]

RATES = (0.5, 0.8, 0.9, 0.95, 0.98)
CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
FAMILIES = ("mixture", "copula")
JUDGED_SHARE = 0.05
HISTORY = 10_000
"""Traces of the longest window, 500 of them judged: where the slope's history comes from."""


def _seed(*cell: object) -> np.random.Generator:
    return np.random.default_rng([4, zlib.crc32(repr(cell).encode())])


@dataclass(slots=True)
class Tally:
    """Of one method in one cell."""

    covered: int = 0
    runs: int = 0
    width: float = 0.0
    bias: float = 0.0
    judged: int = 0

    def add(self, truth: float, value: float, lower: float, upper: float, judged: int) -> None:
        self.covered += lower - 1e-9 <= truth <= upper + 1e-9
        self.runs += 1
        self.width += upper - lower
        self.bias += value - truth
        self.judged += judged

    @property
    def cost(self) -> float:
        """Judge calls for a given width, up to a factor: the width falls with their root."""
        return self.judged / self.runs * (self.width / self.runs) ** 2


@dataclass(slots=True)
class Cell:
    tallies: dict[str, Tally] = field(default_factory=dict)

    def add(self, method: str, truth: float, interval: Sequence[float], judged: int) -> None:
        tally = self.tallies.setdefault(method, Tally())
        tally.add(truth, interval[0], interval[1], interval[2], judged)


def _plain_sums(sample: Sample) -> list[list[int]]:
    """Without the cheap scores."""
    return [[0 if i in CHEAP_FIELDS else v for i, v in enumerate(s)] for s in sample.sums]


def _rates(sample: Sample, slope: float) -> dict[str, Interval]:
    """Our two estimates, as the windows make them."""
    stratified = rate_interval(stratum_moments(_plain_sums(sample)))
    helped = stratified
    if sample.judged >= WILSON_BELOW:
        helped = rate_interval(stratum_moments(sample.sums), slope)
    return {"stratified": stratified, "helped": helped}


def _cell(n: int, design: str, rate: float, rho: float, family: str, runs: int) -> Cell:
    rng = _seed(n, design, rate, rho, family)
    f, y, cut = labels(rng, HISTORY, rate, rho, family)
    slope = shrink_slope(stratum_moments(draw(rng, f, y, cut, JUDGED_SHARE, 1.0).sums))
    cell = Cell()
    for _ in range(runs):
        f, y, cut = labels(rng, round(n / JUDGED_SHARE), rate, rho, family)
        sample = draw(rng, f, y, cut, JUDGED_SHARE, DESIGNS[design])
        if sample.judged < 5:
            continue
        truth = float(y.mean())
        limits = wilson_interval(sample.mean, sample.judged)
        cell.add("plain", truth, (sample.mean, *limits), sample.judged)
        for method, interval in _rates(sample, slope).items():
            cell.add(method, truth, interval, sample.judged)
    return cell


def coverage(runs: int, sizes: Sequence[int] = (20, 50, 200)) -> Iterator[dict[str, object]]:
    """A row per number of judged traces and design: mean and worst coverage over 50 cells, and the
    saving in judge calls at equal width against uniform sampling with Wilson, by correlation."""
    for n in sizes:
        uniform: dict[tuple[float, float, str], Tally] = {}
        for design in DESIGNS:
            cells = {
                key: _cell(n, design, *key, runs) for key in product(RATES, CORRELATIONS, FAMILIES)
            }
            if design == "uniform":
                uniform = {key: cell.tallies["plain"] for key, cell in cells.items()}
            row: dict[str, object] = {"judged": n, "design": design}
            for method in ("plain", "stratified", "helped"):
                found = [cell.tallies[method] for cell in cells.values()]
                shares = [tally.covered / tally.runs for tally in found]
                row[method] = (round(float(np.mean(shares)), 3), round(min(shares), 2))
                row[f"{method} bias"] = round(max(abs(t.bias / t.runs) for t in found), 4)
            for method in ("stratified", "helped"):
                row[f"saving {method}"] = {
                    rho: _saving(cells, uniform, method, rho) for rho in CORRELATIONS
                }
            yield row


def _saving(
    cells: dict[tuple[float, float, str], Cell],
    uniform: dict[tuple[float, float, str], Tally],
    method: str,
    rho: float,
) -> tuple[float, float]:
    """(copula, mixture), mean over the rates .8 to .95."""
    out = []
    for family in reversed(FAMILIES):
        keys = [(rate, rho, family) for rate in (0.8, 0.9, 0.95)]
        costs = [cells[key].tallies[method].cost / uniform[key].cost for key in keys]
        out.append(round(1 - float(np.mean(costs)), 2))
    return out[0], out[1]


def graded_scores(
    runs: int, sizes: Sequence[int] = (50, 200), correlations: Sequence[float] = (0.3, 0.5, 0.7)
) -> Iterator[dict[str, object]]:
    """Graded scores, with the cheap score's help and without: coverage, and width with it as a part
    of the width without it."""
    for n, design in product(sizes, ("uniform", "tail x3", "tail x5")):
        for rho in (0.0, *correlations):
            cell = Cell()
            shares: dict[str, list[float]] = {"stratified": [], "helped": []}
            for kind in GRADED:
                one = _graded_cell(n, design, rho, kind, runs)
                for method, tally in one.tallies.items():
                    shares[method].append(tally.covered / tally.runs)
                    total = cell.tallies.setdefault(method, Tally())
                    total.width += tally.width / tally.runs
            width = {m: t.width for m, t in cell.tallies.items()}
            yield {
                "judged": n,
                "design": design,
                "correlation": rho,
                **{m: (round(float(np.mean(s)), 3), round(min(s), 3)) for m, s in shares.items()},
                "width": round(width["helped"] / width["stratified"], 2),
            }


def _graded_cell(n: int, design: str, rho: float, kind: str, runs: int) -> Cell:
    rng = _seed("graded", n, design, rho, kind)
    f, y, cut = graded(rng, HISTORY, rho, kind)
    past = stratum_moments(draw(rng, f, y, cut, JUDGED_SHARE, 1.0).sums)
    variances = [sample_variance([stratum])[0] for stratum in past]
    slope = shrink_slope(past)
    cell = Cell()
    for _ in range(runs):
        f, y, cut = graded(rng, round(n / JUDGED_SHARE), rho, kind)
        sample = draw(rng, f, y, cut, JUDGED_SHARE, DESIGNS[design])
        truth = float(y.mean())
        plain = mean_interval(stratum_moments(_plain_sums(sample)), variances, 0.0, 1.0)
        helped = plain
        if sample.judged >= WILSON_BELOW:
            found = stratum_moments(sample.sums)
            helped = mean_interval(found, variances, 0.0, 1.0, slope_history=slope)
        cell.add("stratified", truth, plain, sample.judged)
        cell.add("helped", truth, helped, sample.judged)
    return cell


def missing(runs: int) -> Iterator[dict[str, object]]:
    """The judge fails on 5 % of the good answers and on more of the bad ones: coverage of the
    truth over all, without the bounds and with them."""
    for bad_share in (0.05, 0.15, 0.4):
        cell = Cell()
        rng = _seed("missing", bad_share)
        for _ in range(runs):
            y = rng.random(400) < 0.85
            lost = rng.random(400) < np.where(y, 0.05, bad_share)
            seen = y[~lost]
            share = float(lost.mean())
            value = float(seen.mean())
            own = Interval(value, *wilson_interval(value, len(seen)), len(seen))
            cell.add("of the scored", 0.85, own, len(seen))
            cell.add("with bounds", 0.85, widen_for_missing(own, share, 0.0, 1.0), len(seen))
        yield {
            "lost of the bad": bad_share,
            "bias": round(cell.tallies["with bounds"].bias / runs, 4),
            **{
                method: (round(t.covered / t.runs, 3), round(t.width / t.runs, 3))
                for method, t in cell.tallies.items()
            },
        }


PARTS: dict[str, Callable[[int], Iterator[dict[str, object]]]] = {
    "coverage": coverage,
    "graded": graded_scores,
    "missing": missing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200, help="of each cell")
    parser.add_argument("--only", choices=PARTS, help="one of the tables")
    options = parser.parse_args()
    for name, table in PARTS.items():
        if options.only in (None, name):
            for row in table(options.runs):
                print(json.dumps({"table": name, **row}), flush=True)


if __name__ == "__main__":
    main()
