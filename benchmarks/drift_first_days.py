"""The first days of a service: false alarms from the first minute on, and large falls found.

`python -m benchmarks.drift_first_days [--runs N]`. A day has a rhythm here and begins at a random
hour. Compared: to begin after six hours as if they told the whole day, to begin after a day, and
what is shipped. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from ragmeter.drift.baseline import Baseline, BaselineLearner
from ragmeter.drift.series import MILESTONES, DetectorSpec, DriftSeries
from ragmeter.drift.series_monitors import LATENCY_LEVELS, LATENCY_RHYTHM

__all__ = ["KINDS", "PLANS", "Kind", "Plan", "alarms", "main"]

H = 30 * 86400.0
"""One false alarm in 30 days, the whole allowance for one series."""

NORMAL = NormalDist()
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """When baselines come, and whether those of less than a day are widened."""

    name: str
    milestones: tuple[tuple[float, int], ...] = MILESTONES
    widened: bool = True


class Unwidened(DriftSeries):
    """Takes a baseline of six hours for that of the day."""

    def _provisional(
        self, baseline: Baseline, learner: BaselineLearner, all_hours: bool = True
    ) -> Baseline:
        return baseline


PLANS = (
    Plan("as if six hours told the day", widened=False),
    Plan("begin after a day", MILESTONES[1:]),
    Plan("**shipped**"),
)


@dataclass(frozen=True)
class Kind:
    """A mean that swings around `level` by `swing` of it in a day: a rate, or with `strength` that
    of a Beta. With `spread` it is the median of a latency, whose shares above five edges are seen.
    `fall` is a large change for the worse."""

    level: float
    swing: float
    fall: float
    strength: float = 0.0
    spread: float = 0.0

    def watch(self) -> DetectorSpec:
        if self.spread:
            return DetectorSpec(60, edges=len(LATENCY_LEVELS), rhythm=LATENCY_RHYTHM)
        return DetectorSpec(60)

    def sums(self, rng: np.random.Generator, n: Counts, mean: Floats) -> tuple[Floats, Floats]:
        """(sums, sums of squares) by minute and statistic, of badness."""
        if self.spread:
            first = mean[:60].mean()
            edges = [first * math.exp(self.spread * NORMAL.inv_cdf(q)) for q in LATENCY_LEVELS]
            x = np.log(np.asarray(edges)[None, :] / mean[:, None]) / self.spread
            below = np.diff(np.vectorize(NORMAL.cdf)(x), prepend=0.0, append=1.0)
            above = rng.multinomial(n, below)[:, ::-1].cumsum(1)[:, -2::-1].astype(float)
            return above, above
        if not self.strength:
            k = rng.binomial(n, mean).astype(float)[:, None]
            return k, k
        where = np.repeat(np.arange(len(n)), n)
        m = mean[where]
        x = rng.beta(m * self.strength, (1 - m) * self.strength)
        one, two = (np.bincount(where, w, len(n)).astype(float) for w in (x, x * x))
        return one[:, None], two[:, None]


KINDS = {
    "errors 5 %": Kind(0.05, 0.0, 0.2),
    "errors 5 %, 2.5 to 7.5 %": Kind(0.05, 0.5, 0.2),
    "errors 1 %, .5 to 1.5 %": Kind(0.01, 0.5, 0.2),
    "errors 5 %, 1 to 9 %": Kind(0.05, 0.8, 0.3),
    "score .85": Kind(0.15, 0.0, 0.5, strength=10),
    "score .85, .82 to .88": Kind(0.15, 0.2, 0.5, strength=10),
    "score .80, .74 to .86": Kind(0.20, 0.3, 0.5, strength=10),
    "latency 1 s": Kind(1.0, 0.0, 3.0, spread=0.6),
    "latency 1 s, .8 to 1.2 s": Kind(1.0, 0.2, 3.0, spread=0.6),
    "latency 1 s, .7 to 1.3 s": Kind(1.0, 0.3, 3.0, spread=0.6),
}
"""Badness: errors, 1 - score, seconds."""


def alarms(
    kind: Kind, seed: int, hours: float, plan: Plan, fall: float | None = None, rate: float = 1.0
) -> list[float]:
    """Hours since the first trace at which alarms came. It gets worse after `fall` hours."""
    rng = np.random.default_rng([23, seed])
    begin = rng.integers(1440)
    minute = np.arange(int(hours * 60))
    mean = kind.level * (1 + kind.swing * np.sin(2 * np.pi * (minute + begin) / 1440))
    if fall is not None:
        mean = np.where(minute >= fall * 60, mean + kind.fall - kind.level, mean)
    n = rng.poisson(rate * 60 * np.ones(len(minute)))
    sums, squares = kind.sums(rng, n, mean)
    series = (DriftSeries if plan.widened else Unwidened)(kind.watch(), plan.milestones)
    out = []
    for i, row in enumerate(zip(n.tolist(), sums.tolist(), squares.tolist(), strict=True)):
        if row[0] and series.feed(float((begin + i) * 60), *row, H):
            out.append((i + 1) / 60)
    return out


def far(kind: Kind, runs: int, days: int, plan: Plan) -> tuple[float, float]:
    """False alarms per 30 days: of the first day, and of those after it."""
    found = [t for seed in range(runs) for t in alarms(kind, seed, days * 24, plan)]
    first = sum(t <= 24 for t in found)
    return first * 30 / runs, (len(found) - first) * 30 / (runs * (days - 1))


def delay(kind: Kind, runs: int, fall: float, plan: Plan) -> str:
    """Median minutes from a fall to the alarm, twelve hours long."""
    late = []
    for seed in range(runs):
        found = alarms(kind, 1000 + seed, fall + 12, plan, fall)
        after = [t - fall for t in found if t > fall]
        late.append(after[0] * 60 if after else np.inf)
    middle = float(np.median(late))
    return f"{middle:.0f}" if middle < np.inf else f"{np.mean(np.isfinite(late)):.0%} found"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    print("| | | FA first day | FA next two | fall after 8 h | after 18 h | after 30 h |")
    print("| --- | --- |" + " ---: |" * 5)
    for name, kind in KINDS.items():
        for plan in PLANS:
            first, later = far(kind, runs, 3, plan)
            found = [delay(kind, max(5, runs // 5), hours, plan) for hours in (8, 18, 30)]
            cells = [name, plan.name, f"{first:.1f}", f"{later:.1f}", *found]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
