"""Traffic, populations and cases of `benchmarks.acceptance`.

The estimators may be tuned on `tuning_cases`. `heldout_cases` has the same kinds of cases; the
parameters of every population and every sampling rate are drawn from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ragmeter.core.metric_specs import base_name
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.registry import metric_specs

from training.devdata import rows, to_trace

__all__ = [
    "MEAN_SIZES",
    "RATE_SIZES",
    "Case",
    "Floats",
    "Generator",
    "Population",
    "Traffic",
    "binary",
    "heldout_cases",
    "quick_cases",
    "real_cases",
    "tuning_cases",
]

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

RATE_SIZES, MEAN_SIZES = (50, 100, 200, 400), (8, 12, 20, 35, 50, 100, 200)
UMBRELA = "relevance"
# A built-in score helps metrics of its own base name (or those that the registry names), so rates
# with cheap scores of their own have a name each.
RATES = (
    "answered",
    "citation_presence",
    "exact_match",
    "calculation",
    "recall_any_at_k",
    "attribution_hit",
    "abstention_accuracy",
    "conflict_handled",
)


class Traffic(NamedTuple):
    """What the populations of a case share: `latent` is standard normal, `cheap` rises with it;
    `burst` marks bad times; `row` points to real answers."""

    latent: Floats
    cheap: Floats
    burst: npt.NDArray[np.bool_]
    row: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Population:
    """Values of one judged metric and cheap scores (None: none; NaN: none of this trace).

    A suffix such as `:3` lets one trace carry many populations of a metric; its spec is that of the
    base name. `cheap_metric` is the built-in metric that the cheap scores are of.
    """

    name: str
    metric: str
    draw: Callable[[Generator, Traffic], tuple[Floats, Floats | None]]
    cheap_metric: str = ""

    @property
    def scorer(self) -> str:
        return "umbrela" if base_name(self.metric) == UMBRELA else "judge"

    @property
    def top(self) -> float:
        return metric_specs()[base_name(self.metric)].high or 1.0

    @property
    def kind(self) -> str:
        return "rates" if metric_specs()[base_name(self.metric)].kind == "ratio" else "means"


@dataclass(frozen=True, slots=True)
class Case:
    """A service under one way of sampling.

    `judged` are the expected numbers of judged traces at which all gauges are read: half of the
    traces between two readings come in the last five minutes. With `hours` instead, gauges are read
    at the end of each hour with three bursts, under `calls` a minute. `fails` are the shares of
    good and bad answers on which the judge fails, `late` its mean seconds for both.
    """

    row: str
    populations: Sequence[Population]
    rate: float
    judged: Sequence[int] = ()
    runs: int = 100
    ratio: float = 1.0
    low: bool = False  # the shared cheap score is `grounding`, whose lowest fifth is a stratum
    hours: int = 0
    calls: float = 0.0
    fails: tuple[float, float] = (0.0, 0.0)
    late: tuple[float, float] = (0.0, 0.0)
    modes: float = 1.0  # above 1 the shared cheap score crowds at both ends
    answers: int = 1  # real ones, to draw from
    every: bool = False  # no judge: the values are the built-in scores of every trace

    def traffic(self, rng: Generator, burst: npt.NDArray[np.bool_]) -> Traffic:
        latent = rng.standard_normal(len(burst))
        cheap = 1 / (1 + np.exp(-(self.modes * latent + 1.2)))
        return Traffic(latent, cheap, burst, rng.integers(0, self.answers, len(burst)))


# Populations ----------------------------------------------------------------


def binary(index: int, p: float, miss: float, flag: float) -> Population:
    """A rate with a 0/1 cheap score that misses bad answers and flags good ones."""

    def draw(rng: Generator, traffic: Traffic) -> tuple[Floats, Floats | None]:
        y, u = rng.random((2, len(traffic.row)))
        good = y < p
        return good.astype(float), np.where(good, u >= flag, u < miss).astype(float)

    return Population(f"p {p:.3g}, miss {miss:.2g}, flag {flag:.2g}", RATES[index], draw)


def alone(name: str, metric: str, values: Callable[[Generator, int], Any]) -> Population:
    """Values without a cheap score."""
    return Population(
        name, metric, lambda rng, traffic: (1.0 * values(rng, len(traffic.row)), None)
    )


def zero_or_one(index: int, p: float, metric: str = "faithfulness") -> Population:
    return alone(f"0/1 {p:.3g}", f"{metric}:{index}", lambda rng, n: rng.random(n) < p)


def claims(index: int, p: float, support: Sequence[float] = (0, 0.5, 0.67)) -> Population:
    """Shares of claims that hold: 1 with probability p, else one of a few."""

    def values(rng: Generator, n: int) -> Any:
        return np.where(rng.random(n) < p, 1.0, rng.choice(support, n))

    return alone(f"claims {p:.3g}", f"faithfulness:{index}", values)


def grades(index: int, name: str, shares: Sequence[float]) -> Population:
    """UMBRELA's grades 0 to 3."""
    return alone(name, f"{UMBRELA}:{index}", lambda rng, n: rng.choice(4, n, p=shares))


def beta(index: int, a: float, b: float) -> Population:
    name = f"Beta({a:.3g}, {b:.3g})"
    return alone(name, f"faithfulness:{index}", lambda rng, n: rng.beta(a, b, n))


def spike(index: int, share: float) -> Population:
    """Scores near 1 with this probability, else near 0."""

    def values(rng: Generator, n: int) -> Any:
        return np.where(rng.random(n) < share, rng.beta(60, 2, n), rng.beta(2, 20, n))

    return alone(f"spike {share:.3g}", f"faithfulness:{index}", values)


def correlated(index: int, p: float, r: float, steps: int = 1) -> Population:
    """Labels 0/1 or grades in `steps` whose latent value correlates by r with the shared score."""
    bars = [NormalDist().inv_cdf((1 - p) * (step + 1) / steps) for step in range(steps)]

    def draw(rng: Generator, traffic: Traffic) -> tuple[Floats, Floats | None]:
        other = rng.standard_normal(len(traffic.row))
        latent = r * traffic.latent + math.sqrt(1 - r * r) * other
        return np.searchsorted(bars, latent) / steps, traffic.cheap

    name = f"{'0/1' if steps == 1 else 'grades'} {p:.3g}, r {r:.2g}"
    return Population(name, f"faithfulness:{index}", draw, "grounding")


def bursty(calm: float, burst: float, support: Sequence[float]) -> list[Population]:
    """A rate with a 0/1 cheap score and claims with a continuous one, both worse in bursts."""
    name = f"{calm:.2g}, {burst:.2g} in bursts"

    def good(rng: Generator, traffic: Traffic) -> npt.NDArray[np.bool_]:
        return rng.random(len(traffic.burst)) < np.where(traffic.burst, burst, calm)

    def rate(rng: Generator, traffic: Traffic) -> tuple[Floats, Floats | None]:
        y = good(rng, traffic)
        u = rng.random(len(traffic.burst))
        return y.astype(float), np.where(y, u >= 0.03, u < 0.1).astype(float)

    def mean(rng: Generator, traffic: Traffic) -> tuple[Floats, Floats | None]:
        y = good(rng, traffic)
        n = len(traffic.burst)
        cheap = np.where(y, rng.beta(6, 2, n), rng.beta(3, 4, n))
        return np.where(y, 1.0, rng.choice(support, n)), cheap

    return [
        Population(f"rate {name}", "answered", rate),
        Population(f"claims {name}", "faithfulness", mean, "grounding"),
    ]


# Cases ----------------------------------------------------------------------


def _cases(
    binaries: Sequence[Population],
    means: Sequence[Population],
    tails: Sequence[Population],
    bursts: Sequence[Population],
    rates: Sequence[float],
    calls: float,
    modes: float,
) -> list[Case]:
    """All rows; `rates` are of 0/1 cheap scores, means, means at a high rate, then of any."""
    some = [means[0], means[3], means[7], means[9], *binaries[:2]]
    every = [zero_or_one(20, 0.95, "answered"), binaries[3], *means[4:12:2]]
    late = {"late verdicts": (20, 20), "bad verdicts later": (20, 80)}
    return [
        Case("0/1 cheap score", binaries, rates[0], RATE_SIZES, 120),
        Case("bounded means", means, rates[1], MEAN_SIZES, 160),
        Case("bounded means, high rate", means, rates[2], MEAN_SIZES, 160),
        *(Case(f"{100 * rate:.0f} % judged", some, rate, (50, 200), 160) for rate in rates[3:]),
        *(
            Case(f"tail x{ratio}", tails, 0.2, (50, 200), 100, ratio, low=True, modes=modes)
            for ratio in (1, 3, 5)
        ),
        Case("budget, bursts", bursts, 0.2, (), 20, hours=6, calls=calls, late=(20, 20)),
        *(Case(name, some, 0.2, (60, 200), late=seconds) for name, seconds in late.items()),
        *(
            Case(f"judge fails on 5, {100 * bad:.0f} %", some, 0.2, (60, 200), fails=(0.05, bad))
            for bad in (0.15, 0.6)
        ),
        Case("every trace, about the process", every, 1.0, (20, 100, 400), 200, every=True),
    ]


def tuning_cases() -> list[Case]:
    """Return the cases that the estimators may be tuned on."""
    binaries = (
        (0.97, 0.06, 0.025),
        (0.97, 0.1, 0.01),
        (0.95, 0.1, 0.02),
        (0.9, 0.1, 0.01),
        (0.98, 0.06, 0.01),
        (0.99, 0.2, 0.02),
        (0.8, 0.1, 0.05),
        (0.85, 0.01, 0.03),
    )
    means = [
        *(zero_or_one(i, p) for i, p in enumerate((0.9, 0.95, 0.98, 0.99))),
        *(claims(4 + i, p) for i, p in enumerate((0.9, 0.95, 0.98))),
        grades(7, "grades, spread", (0.1, 0.2, 0.4, 0.3)),
        grades(8, "grades, high", (0.01, 0.02, 0.07, 0.9)),
        beta(9, 8, 2),
        beta(10, 20, 1),
        spike(11, 0.97),
    ]
    kinds = [(r, *kind) for r in (0.3, 0.5, 0.7) for kind in ((0.8, 1), (0.95, 1), (0.9, 4))]
    return _cases(
        [binary(i, *one) for i, one in enumerate(binaries)],
        means,
        [correlated(i, p, r, steps) for i, (r, p, steps) in enumerate(kinds)],
        bursty(0.95, 0.6, (0, 0.5, 0.67)),
        rates=(0.1, 0.1, 0.5, 0.2, 0.5, 0.8),
        calls=5.0,
        modes=1.0,
    )


def heldout_cases(seed: int) -> list[Case]:
    """Return cases of the same kinds with other parameters, all drawn from the seed."""
    rng = np.random.default_rng([seed, 99])

    def between(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    def scale(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** rng.random():.2g}")

    def support() -> list[float]:
        return [0.0, *np.sort(rng.random(3)).round(2).tolist()]

    shares = [rng.dirichlet(weights).tolist() for weights in ((1, 2, 4, 3), (0.3, 0.5, 1, 9))]
    ends = (0.8, 0.93), (0.93, 0.99)
    calm, burst = between(0.85, 0.98), between(0.4, 0.8)
    return _cases(
        [binary(i, between(0.8, 0.99), scale(0.01, 0.2), scale(0.005, 0.05)) for i in range(8)],
        [
            *(zero_or_one(i, between(*ends[i])) for i in range(2)),
            *(claims(2 + i, between(0.8, 0.99), support()) for i in range(3)),
            *(grades(5 + i, f"grades {i + 1}", shares[i]) for i in range(2)),
            *(beta(7 + i, scale(4, 30), scale(0.3, 3)) for i in range(3)),
            *(spike(10 + i, between(0.9, 0.99)) for i in range(2)),
        ],
        [correlated(i, between(0.8, 0.97), between(0.2, 0.8), (1, 1, 3)[i % 3]) for i in range(9)],
        bursty(calm, burst, support()),
        rates=[
            between(0.08, 0.3),
            between(0.08, 0.3),
            between(0.3, 0.7),
            between(0.15, 0.25),
            between(0.4, 0.6),
            between(0.7, 0.85),
        ],
        calls=between(4, 8),
        modes=between(2, 5),
    )


def quick_cases() -> list[Case]:
    """Return a few cells for tests: 20 s."""
    binaries = [binary(0, 0.97, 0.06, 0.025), binary(1, 0.95, 0.1, 0.02)]
    means = [zero_or_one(0, 0.98), claims(1, 0.95), beta(2, 20, 1), spike(3, 0.97)]
    tails = [correlated(0, 0.8, 0.5), correlated(1, 0.9, 0.5, 4)]
    bursts = bursty(0.95, 0.6, (0, 0.5, 0.67))
    return [
        Case("0/1 cheap score", binaries, 0.1, (72,), 150),
        Case("bounded means", means, 0.5, (12, 50), 150),
        Case("half judged", [binaries[0], means[1]], 0.5, (100,), 80),
        Case("tail x3", tails, 0.2, (60,), 120, 3, low=True),
        Case("budget, bursts", bursts, 0.2, (), 4, hours=2, calls=5.0, late=(20, 20)),
        Case("judge fails", [binaries[1], means[0]], 0.2, (60,), 100, fails=(0.05, 0.3)),
    ]


def real_cases(folder: Path) -> list[Case]:
    """Return cases of real answers, drawn with replacement, with people's labels as verdicts."""
    answered, grounded = [], []
    for name in ("abstention_delucionqa", "abstention_xstest_safe", "abstention_mtrag_un"):
        for row in rows(folder, name):
            abstained = row["labels"]["normalized"].get("abstained")
            if abstained in (True, False) and not row["labels"].get("abstained_label_is"):
                answered.append((to_trace(row), float(not abstained)))
    for row in rows(folder, "grounding_ragtruth"):
        grounded.append((to_trace(row), float(not row["labels"]["normalized"]["hallucinated"])))
    cases = []
    for name, answers, cheap, metrics in (
        ("people: answered", answered, "answered", ("answered",)),
        ("people: RAGTruth", grounded, "grounding", ("faithfulness", "groundedness", "grounding")),
    ):
        labels = np.array([label for _, label in answers])
        scores = []
        for trace, _ in answers:
            prepared = PreparedTrace(trace)
            given = [*score_cheap(prepared), *score_builtin(prepared)]
            values = {score.metric: score.value for score in given}
            scores.append(math.nan if values[cheap] is None else values[cheap])
        populations = [_labelled(metric, cheap, labels, np.array(scores)) for metric in metrics]
        cases += [
            Case(f"{name} x{ratio}", populations, 0.15, (50, 200), 120, ratio, answers=len(labels))
            for ratio in ((1,) if cheap == "answered" else (1, 3))  # by default low is of grounding
        ]
    return cases


def _labelled(metric: str, cheap: str, labels: Floats, scores: Floats) -> Population:
    return Population(
        metric, metric, lambda rng, traffic: (labels[traffic.row], scores[traffic.row]), cheap
    )
