"""The estimators, sketches, detectors and burn rates that ship, under the names that the statistics
acceptance harness calls.

Run it from the harness's folder with the repository on the path:
`PYTHONPATH=<repository> python acceptance.py --impl benchmarks.acceptance_adapter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragmeter.alerts.error_budgets import MIN_ERRORS, STANDARD_BURN_RATES, ErrorBudgets, Objective
from ragmeter.core.arithmetic import WEIGHT_ONE, value_units, weight_units
from ragmeter.drift.baseline import HOUR, MINUTE, Baseline, BaselineLearner
from ragmeter.drift.detectors import MIN_EDGE_SAMPLES, MIN_MEAN_SAMPLES, DriftStream
from ragmeter.windows.estimators import mean_interval, rate_interval, stratum_moments
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import add_scored, empty_sums

__all__ = ["burn", "dist_detector", "mean_ci", "mean_detector", "rate_ci", "sketch"]


def _sums(stratum: dict[str, Any]) -> list[int]:
    """The sums of a stratum given as lists: N, F (mean cheap score), y, f, pi."""
    sums = empty_sums()
    sums[0] = stratum["N"] * WEIGHT_ONE
    sums[1] = value_units(stratum["N"] * stratum["F"]) * WEIGHT_ONE
    for value, cheap, probability in zip(stratum["y"], stratum["f"], stratum["pi"], strict=True):
        y, f = value_units(value), value_units(cheap)
        add_scored(sums, weight_units(probability), y, y * y, f=f, ff=f * f, yf=y * f)
    return sums


def rate_ci(strata: Sequence[dict[str, Any]], lam_hist: float = 0.0) -> tuple[float, float, float]:
    """(estimate, lower, upper) of a 0/1 label over all traffic."""
    found = stratum_moments([_sums(stratum) for stratum in strata])
    if not found:
        return float("nan"), 0.0, 1.0
    interval = rate_interval(found, lam_hist)
    return interval.value, interval.lower, interval.upper


def mean_ci(
    strata: Sequence[dict[str, Any]], var_hist: Sequence[float]
) -> tuple[float, float, float]:
    """(estimate, lower, upper) of a graded label in 0..1 over all traffic."""
    found = stratum_moments([_sums(stratum) for stratum in strata])
    if not found:
        return float("nan"), 0.0, 1.0
    history = [float(v) for v in var_hist]
    if len(found) < len(history):
        history = [max(history)]
    interval = mean_interval(found, history, 0.0, 1.0)
    return interval.value, interval.lower, interval.upper


class sketch(LogHistogram):
    """A histogram whose weights are floats and whose merge takes a float sign."""

    __slots__ = ()

    def add(self, seconds: float, w: float = 1.0) -> None:
        super().add(seconds, weight_units(1 / w))

    def merge(self, other: LogHistogram, sign: float = 1.0) -> None:
        super().merge(other, int(sign))


Buckets = Sequence[tuple[float, float, float]]
SlotOf = Callable[[int], int]


def _learn(buckets: Buckets, slots: int) -> Baseline:
    """The baseline of consecutive one-minute buckets (n, sum, sum of squares) from midnight on."""
    learner = BaselineLearner(MINUTE)
    for i, (n, total, squares) in enumerate(buckets):
        if n:
            learner.add(i * MINUTE, n, total, squares)
    baseline = learner.freeze(1, slots)
    assert baseline is not None
    return baseline


class _Detector:
    """A stream with a threshold, that starts again after each alarm; slots are hours of the day."""

    def __init__(self, stream: DriftStream, arl_buckets: float) -> None:
        self._stream = stream
        self._threshold = arl_buckets

    def update(self, n: float, totals: float | Sequence[float], slot: int = 0) -> bool:
        sums = totals if isinstance(totals, Sequence) else (totals,)
        statistic = self._stream.add(slot * HOUR, n, sums)
        if statistic is None or statistic < self._threshold:
            return False
        self._stream.restart()
        return True


def mean_detector(
    buckets: Buckets,
    arl_buckets: float,
    two_sided: bool = False,
    slots: int = 1,
    slot_of: SlotOf | None = None,
) -> _Detector:
    """Drift of a bucketed mean, up or both ways."""
    baseline = _learn(buckets, slots)
    return _Detector(DriftStream([baseline], 1, two_sided, MIN_MEAN_SAMPLES), arl_buckets)


def dist_detector(
    list_of_buckets: Sequence[Buckets],
    arl_buckets: float,
    two_sided: bool = True,
    slots: int = 1,
    slot_of: SlotOf | None = None,
) -> _Detector:
    """Drift of the shares above some edges of a distribution."""
    baselines = [_learn(buckets, slots) for buckets in list_of_buckets]
    return _Detector(DriftStream(baselines, 1, two_sided, MIN_EDGE_SAMPLES), arl_buckets)


def burn(
    n: Sequence[int], e: Sequence[int], width: int, slo: float, min_errors: float = MIN_ERRORS
) -> dict[str, list[bool]]:
    """At the end of each bucket of `width` seconds with n events and e errors: does a page, does a
    ticket fire?"""
    budgets = ErrorBudgets([Objective("slo", slo)])
    out: dict[str, list[bool]] = {"page": [], "ticket": []}
    for i, (events, errors) in enumerate(zip(n, e, strict=True)):
        at = i * width
        for count, bad in ((int(events - errors), False), (int(errors), True)):
            if count:
                budgets.add("bot", "slo", at + width / 2, WEIGHT_ONE, bad, count)
        budgets.advance(at + width)
        found = [budgets.burn("bot", "slo", *line, min_errors) for line in STANDARD_BURN_RATES]
        holds = [burn is not None and burn.holds for burn in found]
        out["page"].append(holds[0] or holds[1])
        out["ticket"].append(holds[2])
    return out
