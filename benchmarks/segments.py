"""False discoveries and power of the breakdowns by segment, with the shipped code.

Run with `python -m benchmarks.segments [--runs 400] [--only TABLE]`; every cell is seeded. Prints a
JSON object a row. Traffic has four metrics of one hidden quality and several tags that hang on one
hidden topic, so that segments overlap and their p values depend on one another.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ragmeter.core.arithmetic import VALUE_ONE, weight_units
from ragmeter.parts.segments.breakdown import DEFAULT_FDR, adjust_p_values
from ragmeter.parts.segments.segment_rows import (
    SegmentComparison,
    SeriesBreakdown,
    build_series_breakdown,
)
from ragmeter.windows.contrasts import SeriesKind, estimate_sample, p_values
from ragmeter.windows.sums import NO_SUMS, ScoreSums, StrataSums, StratumSums

__all__ = ["SHAPES", "Design", "discoveries", "main", "tails", "traffic"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Generator = np.random.Generator

RATES = (0.92, 0.6)
"""Shares of good answers of the first two metrics; the other two are graded."""
METRICS = 4
HIDDEN = 0.6  # part of the hidden quality in each metric
FOLLOWS = 0.6  # of the traces whose tag follows the topic
SHAPES = {10: (2, 5), 40: (4, 10), 100: (5, 20)}
"""Segments: (tags, values of each)."""
_NORMAL = NormalDist()
JUDGED = {"low": 0.3, "rest": 0.1}


def _seed(*cell: object) -> Generator:
    return np.random.default_rng([8, zlib.crc32(repr(cell).encode())])


@dataclass(frozen=True, slots=True)
class Design:
    """`before` 0: each is compared with the rest. `drop` falls on one metric in the second value
    of the first tag; `judged`: a tenth is, the low ones three times as often."""

    segments: int
    before: int
    now: int
    judged: bool = False
    drop: float = 0.0


@dataclass(slots=True)
class Traffic:
    """Tags (a column each), values (a column each metric) and cheap scores."""

    tags: Whole
    values: Floats
    cheap: Floats


def traffic(rng: Generator, n: int, design: Design, moved: bool) -> Traffic:
    """`moved`: with the planted change."""
    count, size = SHAPES[design.segments]
    shares = 1 / np.arange(1, size + 1) ** 0.8
    shares /= shares.sum()
    topic = rng.choice(size, n, p=shares)
    tags = np.empty((n, count), np.int64)
    for tag in range(count):
        own = rng.choice(size, n, p=shares)
        tags[:, tag] = np.where(rng.random(n) < FOLLOWS, (topic + tag) % size, own)
    # against its own past a segment may be as good or bad as it is; against the rest it may not
    level = 0.5 * np.cos(topic) if design.before else np.zeros(n)
    quality = rng.standard_normal(n)
    values = np.empty((n, METRICS))
    for metric in range(METRICS):
        z = HIDDEN * quality + math.sqrt(1 - HIDDEN**2) * rng.standard_normal(n) + level
        if metric < len(RATES):
            values[:, metric] = z > _NORMAL.inv_cdf(1 - RATES[metric])
        elif metric == 2:
            values[:, metric] = np.clip(0.8 + 0.12 * z, 0, 1)
        else:
            values[:, metric] = np.where(z < -1.6, 0.0, np.clip(0.9 + 0.06 * z, 0, 1))
    if moved and design.drop:
        hit = tags[:, 0] == 1
        lost = hit & (rng.random(n) < design.drop / RATES[0])
        values[lost, 0] = 0.0
    cheap = np.clip(0.5 + 0.2 * quality, 0, 1)
    return Traffic(tags, values, cheap)


def _cells(one: Traffic, metric: int, size: int, rng: Generator | None) -> dict[str, ScoreSums]:
    """The sums by segment; `rng` draws what is judged."""
    y = np.rint(one.values[:, metric] * VALUE_ONE)
    names = ["", *(f"t{t}={v}" for t, v in product(range(one.tags.shape[1]), range(size)))]
    if rng is None:
        drawn = {"": (np.ones(len(y), bool), np.ones(len(y), bool), 1.0)}
    else:
        low = one.cheap < 0.35
        chance = rng.random(len(y))
        drawn = {
            name: (mask, mask & (chance < JUDGED[name]), JUDGED[name])
            for name, mask in (("low", low), ("rest", ~low))
        }
    parts: dict[str, StrataSums] = {name: {} for name in names}
    for stratum, (frame, scored, pi) in drawn.items():
        sizes, found = _by_segment(one.tags, size, frame, y), _by_segment(one.tags, size, scored, y)
        for name, (total, _, _), (n, sy, syy) in zip(names, sizes, found, strict=True):
            if not total:
                continue
            sums = StratumSums.of_scores(weight_units(pi), sy, syy, n)
            parts[name][stratum] = sums._replace(size=total * weight_units(1.0))
    cells = {}
    for name, strata in parts.items():
        if rng is None:
            sums = strata.get("", NO_SUMS)
            cells[name] = ScoreSums([0, 0, 0, 0, sums.n, sums.y, sums.yy], None)
        else:
            cells[name] = ScoreSums([0] * 7, strata)
    return cells


def _by_segment(
    tags: Whole, size: int, mask: NDArray[np.bool_], y: Floats
) -> list[tuple[int, int, int]]:
    """(number, sum, sum of squares) of all and of each segment, in units. The last is of values on
    a grid of 2**-20, whose squares a float sums without a loss that could be seen."""
    held, picked = y[mask], tags[mask]
    fine = held / VALUE_ONE
    found = [(len(held), int(held.sum()), int(float((fine * fine).sum()) * VALUE_ONE) * VALUE_ONE)]
    for tag in range(tags.shape[1]):
        column = picked[:, tag]
        n = np.bincount(column, minlength=size)
        s = np.bincount(column, held, size)
        ss = np.bincount(column, fine * fine, size)
        found += [
            (int(a), int(b), int(float(c) * VALUE_ONE) * VALUE_ONE)
            for a, b, c in zip(n, s, ss, strict=True)
        ]
    return found


def _series(design: Design, rng: Generator) -> list[SeriesBreakdown]:
    """What the agent would find in one look."""
    count, size = SHAPES[design.segments]
    now = traffic(rng, design.now, design, moved=True)
    before = traffic(rng, design.before, design, moved=False) if design.before else None
    tags = {f"t{tag}": [f"t{tag}={value}" for value in range(size)] for tag in range(count)}
    found = []
    for metric in range(METRICS):
        kind = SeriesKind(metric < len(RATES), 0.0, 1.0)
        draws = rng if design.judged else None
        one = _cells(now, metric, size, draws)
        two = _cells(before, metric, size, draws) if before else None
        series = build_series_breakdown(
            str(metric),
            "s",
            kind,
            tags,
            one,
            two or None,
        )
        if series is not None:
            found.append(series)
    return found


@dataclass(slots=True)
class Tally:
    """Of one procedure: shares of false ones among the findings, and what of the planted change
    was found."""

    false: list[float] = field(default_factory=list)
    any_false: int = 0
    moved: int = 0
    unlike: int = 0


def _null(design: Design, series: SeriesBreakdown, row: SegmentComparison, own: bool) -> bool:
    """Whether nothing has changed, for sure, in what is asked."""
    planted = design.drop and series.metric == "0"
    if not planted:
        return True
    return own and row.segment.startswith("t0=") and row.segment != "t0=1"


PROCEDURES = ("shipped", "yekutieli", "each for itself")


def _findings(asked: Sequence[float]) -> dict[str, list[bool]]:
    harmonic = sum(1 / i for i in range(1, len(asked) + 1))
    qs = adjust_p_values(asked)
    return {
        "shipped": [q <= DEFAULT_FDR for q in qs],
        "yekutieli": [q * harmonic <= DEFAULT_FDR for q in qs],
        "each for itself": [p <= DEFAULT_FDR for p in asked],
    }


def _look(
    design: Design, rng: Generator, tallies: dict[str, Tally], more: dict[str, float]
) -> None:
    found = _series(design, rng)
    asked = [
        (series, row, one, one is row.change)
        for series in found
        for row in series.rows
        for one in (row.change, row.unlike)
        if one is not None
    ]
    more["comparisons"] = more.get("comparisons", 0) + len(asked)
    for name, marks in _findings([one.p for _, _, one, _ in asked]).items():
        tally = tallies[name]
        wrong = right = 0
        hit = {True: False, False: False}
        for (series, row, _, own), mark in zip(asked, marks, strict=True):
            if not mark:
                continue
            if _null(design, series, row, own):
                wrong += 1
            else:
                right += 1
            if series.metric == "0" and row.segment == "t0=1":
                hit[own] = True
        tally.false.append(wrong / (wrong + right) if wrong + right else 0.0)
        tally.any_false += wrong > 0
        tally.moved += hit[True]
        tally.unlike += hit[False]
    if design.drop:
        _note_planted(design, found[0], more)


def _note_planted(design: Design, series: SeriesBreakdown, more: dict[str, float]) -> None:
    """Does its interval hold the truth, and does it add most?"""
    rows = series.tags[0].rows
    row = next((row for row in rows if row.segment == "t0=1"), None)
    if row is None or row.change is None or row.added is None:
        return
    more["known"] = more.get("known", 0) + 1
    truth = more["truth"]
    more["covered"] = more.get("covered", 0) + (row.change.lower <= truth <= row.change.upper)
    share = (row.share + (row.share_before or 0.0)) / 2
    held = row.added.lower <= share * truth + row.added.mix <= row.added.upper
    more["added covered"] = more.get("added covered", 0) + held
    most = min(
        (other for other in rows if other.added), key=lambda o: o.added.value if o.added else 0
    )
    more["adds most"] = more.get("adds most", 0) + (most is row)


def _truth(design: Design) -> float:
    """The change of the planted segment's mean, from a great deal of traffic."""
    rng = _seed("truth", design)
    means = []
    for moved in (False, True):
        one = traffic(rng, 400_000, design, moved)
        means.append(float(one.values[one.tags[:, 0] == 1, 0].mean()))
    return means[1] - means[0]


def discoveries(runs: int, judged: bool | None = None) -> Iterator[dict[str, object]]:
    """A row per design: the false discovery rate (of no change: the share of looks with any
    finding) by procedure, and, of a planted change, how often it is found."""
    sizes = {(20_000, 1_000): (0.0, 0.1, 0.2), (4_000, 2_000): (0.0, 0.1), (0, 5_000): (0.0,)}
    designs = ((size, drop) for size, drops in sizes.items() for drop in drops)
    for segments, ((before, now), drop) in product(SHAPES, list(designs)):
        for sampled in (False, True) if judged is None else (judged,):
            scale = 5 if sampled else 1  # a tenth is judged
            design = Design(segments, before * scale, now * scale, sampled, drop)
            # a rate near .05 needs more looks than a power; the judged ones take longer
            yield _row(design, runs // 4 if drop or sampled else runs)


def _row(design: Design, runs: int) -> dict[str, object]:
    rng = _seed(design)
    tallies = {name: Tally() for name in PROCEDURES}
    more: dict[str, float] = {"truth": _truth(design) if design.drop else 0.0}
    for _ in range(runs):
        _look(design, rng, tallies, more)
    known = more.get("known", 0)
    row: dict[str, Any] = {
        "segments": design.segments,
        "before": design.before,
        "now": design.now,
        "judged": design.judged,
        "drop": round(more["truth"], 3),
        "runs": runs,
        "comparisons": round(more["comparisons"] / runs),
        "false": {name: round(float(np.mean(t.false)), 3) for name, t in tallies.items()},
    }
    if design.drop:
        row["found"] = {name: round(t.moved / runs, 2) for name, t in tallies.items()}
        row["unlike the rest"] = {name: round(t.unlike / runs, 2) for name, t in tallies.items()}
        for name in ("covered", "added covered", "adds most"):
            row[name] = round(more.get(name, 0) / known, 3) if known else None
    return row


def tails(runs: int) -> Iterator[dict[str, object]]:
    """How often a p value of at most alpha comes by chance, in units of alpha (1 is right), with
    each variance alone and as shipped; the worst of several rates or forms of values."""
    for n, times in product((20, 50), (1, 5, 20)):
        for alpha in (0.01, 0.001):
            yield {
                "values": "rates",
                "now": n,
                "before": n * times,
                "alpha": alpha,
                **{k: round(v / alpha, 2) for k, v in _exact(n, n * times, alpha).items()},
            }
    for n, times in product((20, 50), (1, 20)):
        for name, ps in _simulated(n, n * times, 10 * runs).items():
            for alpha in (0.01, 0.001):
                yield {
                    "values": name,
                    "now": n,
                    "before": n * times,
                    "alpha": alpha,
                    **{k: round(float((v <= alpha).mean()) / alpha, 2) for k, v in ps.items()},
                }


WAYS = ("own", "pooled", "shipped")


def _exact(n1: int, n0: int, alpha: float) -> dict[str, float]:
    """Over all outcomes of two equal rates; the worst of five."""
    kind = SeriesKind(True, 0.0, 1.0)

    def samples(n: int) -> list[Any]:
        cells = [
            ScoreSums([0, 0, 0, 0, n, k * VALUE_ONE, k * VALUE_ONE**2], None) for k in range(n + 1)
        ]
        return [estimate_sample(cell, kind) for cell in cells]

    one, two = samples(n1), samples(n0)
    rejected = {way: np.zeros((n1 + 1, n0 + 1), bool) for way in WAYS}
    for a, b in product(range(n1 + 1), range(n0 + 1)):
        if abs(a / n1 - b / n0) < 0.02:
            continue  # never that small
        own, pooled = p_values((one[a], two[b]))
        for way, p in zip(WAYS, (own, pooled, max(own, pooled)), strict=True):
            rejected[way][a, b] = p <= alpha
    worst = dict.fromkeys(WAYS, 0.0)
    for rate in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99):
        chance = np.outer(_binomial(n1, rate), _binomial(n0, rate))
        for way in WAYS:
            worst[way] = max(worst[way], float(chance[rejected[way]].sum()))
    return worst


def _binomial(n: int, rate: float) -> Floats:
    k = np.arange(n + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k])
    found: Floats = np.exp(logs + k * math.log(rate) + (n - k) * math.log1p(-rate))
    return found


def _simulated(n1: int, n0: int, runs: int) -> dict[str, dict[str, Floats]]:
    forms: dict[str, Callable[[Generator, int], Floats]] = {
        "graded, 6 % zeros": lambda rng, n: np.where(rng.random(n) < 0.06, 0, rng.beta(9, 1.5, n)),
        "graded, 2 % zeros": lambda rng, n: np.where(rng.random(n) < 0.02, 0, rng.beta(40, 1, n)),
        "without a bound, lognormal": lambda rng, n: rng.lognormal(0, 1, n),
    }
    found = {}
    for name, form in forms.items():
        rng = _seed("tails", n1, n0, name)
        bounded = not name.startswith("without")
        kind = SeriesKind(False, 0.0, 1.0 if bounded else None)
        ps = np.empty((2, runs))
        for run in range(runs):
            cells = [_cell(form(rng, n)) for n in (n1, n0)]
            pair = estimate_sample(cells[0], kind), estimate_sample(cells[1], kind)
            assert pair[0] is not None
            assert pair[1] is not None
            ps[:, run] = p_values((pair[0], pair[1]))
        found[name] = {"own": ps[0], "pooled": ps[1], "shipped": ps.max(axis=0)}
    return found


def _cell(values: Floats) -> ScoreSums:
    y = [round(float(v) * VALUE_ONE) for v in values]
    return ScoreSums([0, 0, 0, 0, len(y), sum(y), sum(v * v for v in y)], None)


PARTS: dict[str, Callable[[int], Iterator[dict[str, object]]]] = {
    "tails": tails,
    "discoveries": discoveries,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=400, help="of each cell")
    parser.add_argument("--only", choices=PARTS, help="one of the tables")
    options = parser.parse_args()
    for name, table in PARTS.items():
        if options.only in (None, name):
            for row in table(options.runs):
                print(json.dumps({"table": name, **row}), flush=True)


if __name__ == "__main__":
    main()
