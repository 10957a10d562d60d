"""What a rule sees: the reading of its condition in the windows, or that there is none.

`None` means that the condition cannot be evaluated: the series does not exist, carries too few
samples, or its interval bound is not known. It is never a 0 and never an "all is well".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.alerts.burn import Burn, Evidence
from agent.alerts.durations import parse_duration, whole_seconds
from agent.alerts.rules import Rule
from agent.alerts.summary import number
from agent.metrics.canary.judged import is_of_canaries
from agent.metrics.judges import PROBES
from agent.windows.loghist import LogHist
from agent.windows.records import Failed
from agent.windows.sums import Cell

__all__ = [
    "BudgetsLike",
    "EstimateLike",
    "QuantileLike",
    "Reading",
    "WindowsLike",
    "WorstLike",
    "holds",
    "read",
    "read_burn",
    "read_failed",
]


class EstimateLike(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def effective_samples(self) -> float: ...
    @property
    def samples(self) -> int: ...


class QuantileLike(Protocol):
    @property
    def quantile(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def lower(self) -> float | None: ...
    @property
    def upper(self) -> float | None: ...
    @property
    def samples(self) -> int: ...


class WorstLike(Protocol):
    @property
    def trace_id(self) -> str: ...
    @property
    def value(self) -> float: ...


class WindowsLike(Protocol):
    """The part of `agent.windows.Windows` that rules read."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def services(self) -> list[str]: ...
    def segments(self, service: str) -> list[str]: ...
    def series(self, service: str, segment: str = "") -> list[tuple[str, str]]: ...
    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> EstimateLike | None: ...
    def quantiles(
        self, service: str, segment: str, stage: str, window: str
    ) -> Sequence[QuantileLike]: ...
    def seen(self, service: str, segment: str, window: str) -> int: ...
    def worst(
        self,
        service: str,
        metric: str,
        scorer: str,
        window: str,
        limit: int = 5,
        segment: str = "",
    ) -> Sequence[WorstLike]: ...
    def named(self, metric: str, scorer: str) -> str: ...
    def cell(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Cell | None: ...
    def histogram(self, service: str, segment: str, stage: str, window: str) -> LogHist | None: ...
    def before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Cell | None: ...
    def before_latency(
        self, service: str, segment: str, stage: str, window: str
    ) -> LogHist | None: ...
    def value_of(self, cell: Cell, service: str, metric: str, scorer: str) -> float | None: ...
    def failing(self, service: str, window: str) -> Sequence[tuple[str, str]]: ...
    def failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Failed | None: ...
    def before_failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Failed | None: ...


class BudgetsLike(Protocol):
    """The part of `agent.alerts.burn.Budgets` that rules read."""

    def names(self, service: str) -> list[str]: ...
    def evidence(self, name: str) -> tuple[Evidence, ...]: ...
    def burn(
        self, service: str, name: str, long: int, short: int, factor: float, min_errors: float
    ) -> Burn | None: ...
    def before(self, service: str, name: str, long: int) -> float | None: ...
    def spent(self, service: str, name: str) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """An estimate and its interval, and `tested`: the one of them that the rule compares.

    `threshold` replaces the rule's own, `notes` go to the annotations: of error budgets, where
    both come from the objective. `reasons` count the results that failed.
    """

    tested: float
    value: float
    lower: float | None
    upper: float | None
    samples: int
    effective_samples: float
    threshold: float | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)


_OPS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(rule: Rule, reading: Reading) -> bool:
    """Whether the condition is true of the reading."""
    if rule.absence:
        return reading.tested == 0
    if rule.burn is not None:  # two windows and a floor on errors: found out when it was read
        return reading.tested == 1
    return _OPS[rule.op](reading.tested, rule.threshold)


def read(rule: Rule, windows: WindowsLike, service: str, segment: str) -> Reading | None:
    """The reading of a rule for a service that the windows know; None: cannot be evaluated.

    An absence rule looks for silence, so it reads 0 where others read None. It reads None where
    the silent service was seen too rarely in the longest window for its silence to mean anything.
    """
    if rule.absence:
        return _absence(rule, windows, service)
    # An estimate costs tens of microseconds, a count none: most quiet services end here. Probes
    # are no traces of the name that they are counted under, canaries no traffic.
    seen = windows.seen(service, segment, rule.window)
    apart = service == PROBES or (rule.metric is not None and is_of_canaries(rule.scorer))
    if not apart and (not seen or seen < rule.min_samples):
        return None
    if rule.latency is not None:
        return _quantile(rule, windows, service, segment)
    assert rule.metric is not None  # a rule watches exactly one thing
    found = windows.estimate(service, segment, rule.metric, rule.scorer, rule.window)
    if found is None or found.samples < rule.min_samples:
        return None
    statistic = rule.statistic
    tested = (
        found.value
        if statistic == "value"
        else found.lower
        if statistic == "lower"
        else found.upper
    )
    return Reading(
        tested, found.value, found.lower, found.upper, found.samples, found.effective_samples
    )


def read_burn(rule: Rule, budgets: BudgetsLike, service: str, slo: str) -> Reading | None:
    """The reading of a burn rule for one objective: the ratio of bad events over its window.
    None where a window has no event, which is no sign that the budget is safe."""
    line = rule.burn
    assert line is not None
    long = whole_seconds(rule.window)
    found = budgets.burn(service, slo, long, line.seconds, line.factor, line.min_errors)
    if found is None:
        return None
    spent = budgets.spent(service, slo) if found.holds else None
    notes = {
        "objective": f"{found.objective:g}",
        "burn_rate": number(found.rate),
        "factor": f"{line.factor:g}",
        "short": line.short,
        "short_value": number(found.short_ratio),
        "errors": number(found.errors),
    }
    if spent is not None:
        notes["budget_spent"] = number(spent)
    return Reading(
        float(found.holds),
        found.ratio,
        found.lower,
        found.upper,
        found.samples,
        found.effective_samples,
        found.threshold,
        notes,
    )


def read_failed(
    rule: Rule, windows: WindowsLike, service: str, metric: str, scorer: str
) -> Reading | None:
    """The reading of a rule on results without a value, for the results of one scorer."""
    found = windows.failed(service, "", metric, scorer, rule.window)
    if found is None or found.samples < rule.min_samples:
        return None
    tested = {"value": found.value, "lower": found.lower, "upper": found.upper}[rule.statistic]
    return Reading(
        tested, found.value, found.lower, found.upper, found.samples, found.effective_samples,
        reasons=found.reasons,
    )  # fmt: skip


def _quantile(rule: Rule, windows: WindowsLike, service: str, segment: str) -> Reading | None:
    assert rule.latency is not None
    for found in windows.quantiles(service, segment, rule.latency.stage, rule.window):
        if found.quantile == rule.latency.quantile:
            break
    else:
        return None
    tested = {"value": found.value, "lower": found.lower, "upper": found.upper}[rule.statistic]
    if tested is None or found.samples < rule.min_samples:
        return None
    return Reading(
        tested, found.value, found.lower, found.upper, found.samples, float(found.samples)
    )


def _absence(rule: Rule, windows: WindowsLike, service: str) -> Reading | None:
    seen = windows.seen(service, "", rule.window)
    if seen:
        return Reading(float(seen), float(seen), None, None, seen, float(seen))
    longest = max(windows.names, key=parse_duration)
    if windows.seen(service, "", longest) < max(rule.min_samples, 1):
        return None
    return Reading(0.0, 0.0, None, None, 0, 0.0)
