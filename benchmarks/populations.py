"""Simulated windows of traffic for the benchmarks of estimates: labels with a cheap score beside
them, of a chosen rate and correlation, and designs that choose what is judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragmeter.core.arithmetic import VALUE_ONE, WEIGHT_ONE, value_units, weight_units
from ragmeter.windows.sums import add_scored, empty_sums

__all__ = ["DESIGNS", "GRADED", "Sample", "draw", "graded", "labels"]

Floats = NDArray[np.float64]
Generator = np.random.Generator

DESIGNS = {"uniform": 1.0, "tail x3": 3.0, "tail x5": 5.0}
GRADED = ("five", "narrow", "zeros")

_NORMAL = NormalDist()
_X = np.linspace(-6, 6, 2001)
_CDF = np.array([_NORMAL.cdf(x) for x in _X])


def _quantiles(a: float, b: float) -> Floats:
    """The quantiles of a Beta at the grid's probabilities, by summing its density."""
    t = (np.arange(200_000) + 0.5) / 200_000
    density = t ** (a - 1) * (1 - t) ** (b - 1)
    total = np.cumsum(density)
    found: Floats = np.interp(_CDF, total / total[-1], t)
    return found


_CHEAP = _quantiles(5, 2)
_LOW_CUT = float(np.interp(_NORMAL.inv_cdf(0.2), _X, _CHEAP))
_NARROW, _HIGH = _quantiles(17, 3), _quantiles(10, 1)


def labels(
    rng: Generator, number: int, rate: float, rho: float, family: str
) -> tuple[Floats, Floats, float]:
    """(cheap, label 0/1, low cut): a Beta mixture, or a unimodal cheap score by a copula (which
    cannot reach a high correlation at high rates)."""
    if family == "mixture":
        a, b = 8.0, 2.0
        while _most(a, b, rate) < rho * 1.02 and a < 400:
            a *= 1.3
        told = min(1.0, rho / _most(a, b, rate))
        y = rng.random(number) < rate
        z = np.where(rng.random(number) < told, y, rng.random(number) < rate)
        f = np.where(z, rng.beta(a, b, number), rng.beta(b, a, number))
        return f, y.astype(float), 0.5
    bar = _NORMAL.inv_cdf(1 - rate)
    latent = min(0.98, rho * math.sqrt(rate * (1 - rate)) / _NORMAL.pdf(bar))
    x = rng.standard_normal(number)
    other = rng.standard_normal(number)
    y = latent * x + math.sqrt(1 - latent * latent) * other > bar
    return np.interp(x, _X, _CHEAP), y.astype(float), _LOW_CUT


def _most(a: float, b: float, rate: float) -> float:
    """The correlation if the mixture always told the label."""
    gap = (a - b) / (a + b)
    spread = a * b / ((a + b) ** 2 * (a + b + 1))
    part = rate * (1 - rate)
    return gap * math.sqrt(part) / math.sqrt(part * gap * gap + spread)


def graded(rng: Generator, number: int, rho: float, kind: str) -> tuple[Floats, Floats, float]:
    """(cheap, score in 0..1, low cut): five grades, a narrow score, one with 6 % zeros."""
    x = rng.standard_normal(number)
    latent = rho * x + math.sqrt(1 - rho * rho) * rng.standard_normal(number)
    u = np.interp(latent, _X, _CDF)
    if kind == "five":
        y = np.searchsorted([0.03, 0.08, 0.2, 0.5], u) / 4.0
    elif kind == "narrow":
        y = np.interp(u, _CDF, _NARROW)
    else:
        y = np.where(u < 0.06, 0.0, np.interp((u - 0.06) / 0.94, _CDF, _HIGH))
    return np.interp(x, _X, _CHEAP), y, _LOW_CUT


@dataclass(slots=True)
class Sample:
    """What was judged: `sums` by stratum (rest, low), `judged` in all, `mean` of the labels."""

    sums: list[list[int]]
    judged: int
    mean: float


def draw(rng: Generator, f: Floats, y: Floats, cut: float, rate: float, ratio: float) -> Sample:
    """Judge a share `rate` of all, those with a low cheap score `ratio` times as often."""
    low = f < cut
    r = np.where(low, ratio, 1.0)
    pi = np.minimum(1.0, rate * r / r.mean())
    taken = rng.random(len(f)) < pi
    found = []
    for stratum in (~low, low):
        if not stratum.any():
            continue
        sums = empty_sums()
        sums[0] = int(stratum.sum()) * WEIGHT_ONE
        sums[1] = value_units(float(f[stratum].sum())) * WEIGHT_ONE
        mine = stratum & taken
        if mine.any():
            _add(sums, y[mine], f[mine], float(pi[mine][0]))
        found.append(sums)
    judged = int(taken.sum())
    return Sample(found, judged, float(y[taken].mean()) if judged else math.nan)


def _add(sums: list[int], y: Floats, f: Floats, pi: float) -> None:
    ys: list[Any] = np.rint(y * VALUE_ONE).astype(np.int64).tolist()
    fs: list[Any] = np.rint(f * VALUE_ONE).astype(np.int64).tolist()
    add_scored(
        sums,
        weight_units(pi),
        sum(ys),
        sum(map(mul, ys, ys)),
        len(ys),
        sum(fs),
        sum(map(mul, fs, fs)),
        sum(map(mul, ys, fs)),
    )
