"""Which services, segments and series a rule covers, and the value of its condition there.

What a rule sees: the reading of its condition in the windows, or that there is none.

`None` means that the condition cannot be evaluated: the series does not exist, carries too few
samples, or its interval bound is not known. It is never a 0 and never an "all is well".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from ragmeter.alerts.alert import format_number
from ragmeter.alerts.error_budgets import BurnRateValue, ObjectiveEvidence
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_duration, parse_whole_seconds
from ragmeter.core.series import split_scorer
from ragmeter.metrics.canary.scores import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.failures import FailedShare
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import ScoreSums


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
    """The part of `ragmeter.windows.Windows` that rules read."""

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
    def count_traces(self, service: str, segment: str, window: str) -> int: ...
    def worst(
        self,
        service: str,
        metric: str,
        scorer: str,
        window: str,
        limit: int = 5,
        segment: str = "",
    ) -> Sequence[WorstLike]: ...
    def current_scorer(self, metric: str, scorer: str) -> str: ...
    def cell(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None: ...
    def histogram(
        self, service: str, segment: str, stage: str, window: str
    ) -> LogHistogram | None: ...
    def sums_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> ScoreSums | None: ...
    def histogram_before(
        self, service: str, segment: str, stage: str, window: str
    ) -> LogHistogram | None: ...
    def value_of(self, cell: ScoreSums, service: str, metric: str, scorer: str) -> float | None: ...
    def failing(self, service: str, window: str) -> Sequence[tuple[str, str]]: ...
    def failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None: ...
    def failed_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None: ...


class ErrorBudgetsLike(Protocol):
    """The part of `ragmeter.alerts.error_budgets.Budgets` that rules read."""

    def names(self, service: str) -> list[str]: ...
    def evidence(self, name: str) -> tuple[ObjectiveEvidence, ...]: ...
    def burn(
        self, service: str, name: str, long: int, short: int, factor: float, min_errors: float
    ) -> BurnRateValue | None: ...
    def ratio_before(self, service: str, name: str, long: int) -> float | None: ...
    def spent_share(self, service: str, name: str) -> float | None: ...


@dataclass(frozen=True, slots=True)
class ConditionValue:
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


def condition_holds(rule: AlertRule, reading: ConditionValue) -> bool:
    """Whether the condition is true of the reading."""
    if rule.absence:
        return reading.tested == 0
    if rule.burn is not None:  # two windows and a floor on errors: found out when it was read
        return reading.tested == 1
    return _OPS[rule.op](reading.tested, rule.threshold)


def read_condition(
    rule: AlertRule, windows: WindowsLike, service: str, segment: str
) -> ConditionValue | None:
    """The reading of a rule for a service that the windows know; None: cannot be evaluated.

    An absence rule looks for silence, so it reads 0 where others read None. It reads None where
    the silent service was seen too rarely in the longest window for its silence to mean anything.
    """
    if rule.absence:
        return _absence(rule, windows, service)
    # An estimate costs tens of microseconds, a count none: most quiet services end here. Probes
    # are no traces of the name that they are counted under, canaries no traffic.
    seen = windows.count_traces(service, segment, rule.window)
    apart = service == PROBE_SERVICE or (rule.metric is not None and is_canary_scorer(rule.scorer))
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
    return ConditionValue(
        tested, found.value, found.lower, found.upper, found.samples, found.effective_samples
    )


def read_burn_rate(
    rule: AlertRule, budgets: ErrorBudgetsLike, service: str, slo: str
) -> ConditionValue | None:
    """The reading of a burn rule for one objective: the ratio of bad events over its window.
    None where a window has no event, which is no sign that the budget is safe."""
    line = rule.burn
    assert line is not None
    long = parse_whole_seconds(rule.window)
    found = budgets.burn(service, slo, long, line.seconds, line.factor, line.min_errors)
    if found is None:
        return None
    spent = budgets.spent_share(service, slo) if found.holds else None
    notes = {
        "objective": f"{found.objective:g}",
        "burn_rate": format_number(found.rate),
        "factor": f"{line.factor:g}",
        "short": line.short,
        "short_value": format_number(found.short_ratio),
        "errors": format_number(found.errors),
    }
    if spent is not None:
        notes["budget_spent"] = format_number(spent)
    return ConditionValue(
        float(found.holds),
        found.ratio,
        found.lower,
        found.upper,
        found.samples,
        found.effective_samples,
        found.threshold,
        notes,
    )


def read_failed_share(
    rule: AlertRule, windows: WindowsLike, service: str, metric: str, scorer: str
) -> ConditionValue | None:
    """The reading of a rule on results without a value, for the results of one scorer."""
    found = windows.failed(service, "", metric, scorer, rule.window)
    if found is None or found.samples < rule.min_samples:
        return None
    tested = {"value": found.value, "lower": found.lower, "upper": found.upper}[rule.statistic]
    return ConditionValue(
        tested, found.value, found.lower, found.upper, found.samples, found.effective_samples,
        reasons=found.reasons,
    )  # fmt: skip


def _quantile(
    rule: AlertRule, windows: WindowsLike, service: str, segment: str
) -> ConditionValue | None:
    assert rule.latency is not None
    for found in windows.quantiles(service, segment, rule.latency.stage, rule.window):
        if found.quantile == rule.latency.quantile:
            break
    else:
        return None
    tested = {"value": found.value, "lower": found.lower, "upper": found.upper}[rule.statistic]
    if tested is None or found.samples < rule.min_samples:
        return None
    return ConditionValue(
        tested, found.value, found.lower, found.upper, found.samples, float(found.samples)
    )


def _absence(rule: AlertRule, windows: WindowsLike, service: str) -> ConditionValue | None:
    seen = windows.count_traces(service, "", rule.window)
    if seen:
        return ConditionValue(float(seen), float(seen), None, None, seen, float(seen))
    longest = max(windows.names, key=parse_duration)
    if windows.count_traces(service, "", longest) < max(rule.min_samples, 1):
        return None
    return ConditionValue(0.0, 0.0, None, None, 0, 0.0)


_HeldPairs = Mapping[tuple[str, str], set[tuple[str, str]]]
"""(metric, scorer) by (rule, service)."""


class RuleTargets:
    """`rules` in the order of their importance within a severity; `budgets` knows the objectives
    that burn rules look at, and without it they cover nothing."""

    def __init__(self, rules: Sequence[AlertRule], budgets: ErrorBudgetsLike | None) -> None:
        self._rules = rules
        self._budgets = budgets
        self._covering: dict[str, list[AlertRule]] = {}  # what the globs say, by service

    def iterate(
        self, windows: WindowsLike, held: _HeldPairs
    ) -> Iterator[tuple[AlertRule, str, str]]:
        """Every rule with each service and subject it covers, in an order that is always the same.

        A rule without a series to look at is left out here, but for the pairs that it has `held`
        alerts on.
        """
        services = sorted(windows.services())
        if len(self._covering) > 2 * len(services) + 1_000:  # services come and go
            self._covering.clear()
        names = set(windows.names)
        # Not rule by rule: a service's series are asked for once in each round.
        for severity in ("critical", "warning"):
            for service in services:
                segments: list[str] | None = None
                series: dict[str, set[tuple[str, str]]] = {}
                for rule in self._rules_of(service):
                    if rule.burn is not None:
                        if rule.severity == severity and self._budgets is not None:
                            for name in self._budgets.names(service):
                                if fnmatchcase(name, rule.burn.slo):
                                    yield rule, service, f"slo={name}"
                        continue
                    if rule.severity != severity or rule.window not in names:
                        continue
                    if rule.unscored is not None:
                        pairs = set(windows.failing(service, rule.window))
                        for metric, scorer in sorted(pairs | held.get((rule.name, service), set())):
                            if rule.unscored.matches(metric, scorer):
                                yield rule, service, f"{metric} {scorer}"
                        continue
                    wanted = [""]
                    if rule.segment is not None:
                        if segments is None:
                            segments = sorted(windows.segments(service))
                        prefix = f"{rule.segment}="
                        wanted = [name for name in segments if name.startswith(prefix)]
                    for segment in wanted:
                        if rule.metric is not None:
                            if segment not in series:
                                series[segment] = {
                                    (metric, split_scorer(scorer)[0])
                                    for metric, scorer in windows.series(service, segment)
                                }
                            if (rule.metric, rule.scorer) not in series[segment]:
                                continue
                        yield rule, service, segment

    def _rules_of(self, service: str) -> list[AlertRule]:
        found = self._covering.get(service)
        if found is None:
            found = self._covering[service] = [rule for rule in self._rules if rule.covers(service)]
        return found
