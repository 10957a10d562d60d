"""Minute buckets of traffic that does not drift, and of traffic that does, for the drift benchmark.

`values(kind, ...)` gives badness per trace (rates: 1 = error; scores: 1 - score), `minutes` what a
detector sees of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["DAY", "NULLS", "SHIFTS", "Minutes", "minutes", "null", "shifted"]

DAY = 1440
CELLS = 64
Floats = npt.NDArray[np.float64]


class Minutes(NamedTuple):
    """Per minute: samples, sum, sum of squares, and counts by cell of the baseline's quantiles."""

    n: Floats
    total: Floats
    squares: Floats
    cells: npt.NDArray[np.float32]


def _index(rng: np.random.Generator, load: Floats) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(len(load)), rng.poisson(load))


def _beta(rng: np.random.Generator, mean: Floats | float, strength: float, size: int) -> Floats:
    return 1 - rng.beta(np.asarray(mean) * strength, (1 - np.asarray(mean)) * strength, size)


def _markov(
    rng: np.random.Generator, size: int, length: float, share: float
) -> npt.NDArray[np.bool_]:
    """A two-state chain: runs of `length` on average, `share` of the time."""
    runs = int(size / length * share * 2) + 50
    on = rng.geometric(1 / length, runs)
    off = rng.geometric(share / (1 - share) / length, runs)
    flags = np.repeat(np.tile([False, True], runs), np.stack([off, on], 1).ravel())
    return np.resize(flags, size) if len(flags) < size else flags[:size]


def _ar(rng: np.random.Generator, size: int, phi: float) -> Floats:
    noise = rng.standard_normal(size)
    out = np.empty(size)
    last, gain = noise[0], math.sqrt(1 - phi * phi)
    for i, e in enumerate(noise.tolist()):
        last = phi * last + gain * e
        out[i] = last
    return out


def _sine(index: npt.NDArray[np.int64]) -> Floats:
    return np.asarray(np.sin(2 * np.pi * index / DAY))


def _rate(p: float) -> Callable[[np.random.Generator, npt.NDArray[np.int64]], Floats]:
    return lambda rng, index: (rng.random(len(index)) < p).astype(float)


def _bursts(length: float) -> Callable[[np.random.Generator, npt.NDArray[np.int64]], Floats]:
    def make(rng: np.random.Generator, index: npt.NDArray[np.int64]) -> Floats:
        burst = _markov(rng, len(index), length, 0.08)
        return (rng.random(len(index)) < np.where(burst, 0.4, (0.05 - 0.032) / 0.92)).astype(float)

    return make


def _correlated(rng: np.random.Generator, index: npt.NDArray[np.int64]) -> Floats:
    z = _ar(rng, len(index), 0.6)
    # a Gaussian copula with Beta(8.5, 1.5) margins, by rank against a sorted sample
    sample = np.sort(_beta(rng, 0.85, 10.0, 20_000))
    grid = np.sort(rng.standard_normal(20_000))
    return np.asarray(np.interp(z, grid, sample))


def _wave(rng: np.random.Generator, index: npt.NDArray[np.int64]) -> Floats:
    wave = 0.02 * _ar(rng, int(index[-1]) + 1, 0.9)
    return _beta(rng, np.clip(0.85 + wave[index], 0.5, 0.97), 10.0, len(index))


NULLS: dict[str, tuple[Callable[[np.random.Generator, npt.NDArray[np.int64]], Floats], int]] = {
    "rate 5 %": (_rate(0.05), 1),
    "rate 0.5 %": (_rate(0.005), 1),
    "rate, bursts of 20": (_bursts(20), 1),
    "rate, bursts of 100": (_bursts(100), 1),
    "rate, day and night": (
        lambda rng, i: (rng.random(len(i)) < 0.05 * (1 + 0.5 * _sine(i))).astype(float),
        168,
    ),
    "score": (lambda rng, i: _beta(rng, 0.85, 10.0, len(i)), 1),
    "score, AR(1) .6": (_correlated, 1),
    "score, waves": (_wave, 1),
    "score, day and night": (lambda rng, i: _beta(rng, 0.85 + 0.03 * _sine(i), 10.0, len(i)), 168),
}
"""Streams without drift, and the levels (hours of the week) that their baseline needs."""

SHIFTS: dict[str, tuple[str, float, float, float]] = {
    "5 to 8 %": ("rate", 0.05, 0.08, 0),
    "5 to 15 %": ("rate", 0.05, 0.15, 0),
    ".85 to .80": ("score", 0.85, 0.80, 10),
    ".85 to .70": ("score", 0.85, 0.70, 10),
    "spread only": ("score", 0.85, 0.85, 4),
}
"""(kind, mean before, mean after, strength of the Beta after)"""


def minutes(x: Floats, index: npt.NDArray[np.int64], count: int, edges: Sequence[float]) -> Minutes:
    """Buckets 0 to `count` - 1."""
    n = np.bincount(index, minlength=count).astype(float)
    cell = np.searchsorted(np.asarray(edges), x, side="left")
    cells = np.bincount(index * CELLS + cell, minlength=count * CELLS).reshape(count, CELLS)
    total = np.bincount(index, weights=x, minlength=count).astype(float)
    squares = np.bincount(index, weights=x * x, minlength=count).astype(float)
    return Minutes(n, total, squares, cells.astype(np.float32))


def _edges(x: Floats) -> Floats:
    return np.quantile(x, np.arange(1, CELLS) / CELLS)


@cache
def null(
    kind: str, seed: int, days: int, rate: float = 1.0, swell: float = 0.0
) -> tuple[Minutes, int, int]:
    """(minutes, how many of them are baseline, its levels); `rate` traces a second, which grow and
    shrink by a factor of 1 + `swell` over the day."""
    make, slots = NULLS[kind]
    learn = DAY if slots == 1 else 7 * DAY
    count = learn + days * DAY
    rng = np.random.default_rng([17, seed])
    load = rate * 60 * (1 + swell) ** np.sin(2 * np.pi * np.arange(count) / DAY)
    index = _index(rng, load)
    x = make(rng, index)
    return minutes(x, index, count, _edges(x[index < learn]).tolist()), learn, slots


def shifted(
    name: str, seed: int, before: int, after: int, rate: float = 1.0
) -> tuple[Minutes, int]:
    """(minutes, how many of them are baseline): a day of it, then `before` more, then the shift."""
    kind, old, new, strength = SHIFTS[name]
    rng = np.random.default_rng([18, seed])
    count = DAY + before + after
    index = _index(rng, np.full(count, rate * 60))
    late = index >= DAY + before
    if kind == "rate":
        x = (rng.random(len(index)) < np.where(late, new, old)).astype(float)
    else:
        mean, c = np.where(late, new, old), np.where(late, strength, 10.0)
        x = 1 - rng.beta(mean * c, (1 - mean) * c)
    return minutes(x, index, count, _edges(x[index < DAY]).tolist()), DAY
