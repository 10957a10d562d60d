"""Which services, segments and series a rule covers, and the value of its condition there.

A value of None means that the condition cannot be evaluated: the series does not exist, has too
few samples, or its interval bound is unknown. None is never a 0 and never an "all is well".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ragmeter.alerts.conditions import ConditionValue
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.durations import parse_duration
from ragmeter.core.series import split_scorer
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.failures import FailedShare
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows

Dependence = Callable[[str, str | None, str], float]
"""Tells how many requests of a service are worth one independent one, for a metric (None: the p95
of latency) over a window, see `ragmeter.parts.views.RequestHistory.dependence`."""


def take_as_independent(service: str, metric: str | None, window: str) -> float:
    """Take the requests of a service as independent of each other."""
    return 1.0


def read_condition(
    rule: AlertRule,
    windows: Windows,
    service: str,
    segment: str,
    *,
    dependence: Dependence = take_as_independent,
) -> ConditionValue | None:
    """Read the value of a rule on a metric, a latency or absence.

    An absence rule looks for silence, so its value is 0 where others have None. It is None if the
    silent service was seen too rarely in the longest window for its silence to mean anything.
    """
    if rule.absence:
        return _read_absence(rule, windows, service)
    # An estimate costs tens of microseconds, a count none: most quiet services end here. Probes
    # are no traces of the name that they are counted under, canaries no traffic.
    seen = windows.count_traces(service, segment, rule.window)
    uncounted = service == PROBE_SERVICE or (rule.metric and is_canary_scorer(rule.scorer))
    if not uncounted and (not seen or seen < rule.min_samples):
        return None
    if rule.latency is not None:
        quantiles = windows.quantiles(
            service=service,
            segment=segment,
            stage=rule.latency.stage,
            window=rule.window,
            dependence=dependence(service, None, rule.window),
        )
        for quantile in quantiles:
            if quantile.quantile == rule.latency.quantile:
                return _compared_value(rule, quantile, float(quantile.samples))
        return None
    if rule.metric is None:
        raise RuntimeError("a rule watches exactly one thing")
    estimate = _estimate(
        rule,
        windows,
        service=service,
        segment=segment,
        window=rule.window,
        dependence=dependence,
    )
    if estimate is None:
        return None
    value = _compared_value(rule, estimate, estimate.effective_samples)
    if value is None or rule.relative_to is None:
        return value
    usual = _estimate(
        rule,
        windows,
        service=service,
        segment=segment,
        window=rule.relative_to,
        dependence=dependence,
    )
    # the end that gives the service the benefit of the doubt here, too
    end = None if usual is None else usual.lower if rule.statistic == "upper" else usual.upper
    return None if end is None else replace(value, threshold=rule.threshold * end)


def _estimate(
    rule: AlertRule,
    windows: Windows,
    *,
    service: str,
    segment: str,
    window: str,
    dependence: Dependence,
) -> Estimate | None:
    metric = rule.metric or ""
    found = windows.estimate(
        service=service, segment=segment, metric=metric, scorer=rule.scorer, window=window
    )
    effect = 1.0 if found is None else dependence(service, metric, window)
    if effect <= 1:
        return found
    return windows.estimate_dependent(
        service=service,
        segment=segment,
        metric=metric,
        scorer=rule.scorer,
        window=window,
        dependence=effect,
    )


def read_failed_share(
    rule: AlertRule, windows: Windows, service: str, metric: str, scorer: str
) -> ConditionValue | None:
    """Read the value of a rule on results without a value, for the results of one scorer."""
    share = windows.failed(service, "", metric, scorer, rule.window)
    if share is None:
        return None
    return _compared_value(rule, share, share.effective_samples, share.reasons)


def _compared_value(
    rule: AlertRule,
    estimate: Estimate | Quantile | FailedShare,
    effective_samples: float,
    reasons: Mapping[str, int] | None = None,
) -> ConditionValue | None:
    tested: float | None = getattr(estimate, rule.statistic)
    if tested is None or estimate.samples < rule.min_samples:
        return None
    return ConditionValue(
        tested=tested,
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        samples=estimate.samples,
        effective_samples=effective_samples,
        reasons=reasons or {},
    )


def _read_absence(rule: AlertRule, windows: Windows, service: str) -> ConditionValue | None:
    seen = windows.count_traces(service, "", rule.window)
    if seen:
        return ConditionValue(
            tested=float(seen),
            value=float(seen),
            lower=None,
            upper=None,
            samples=seen,
            effective_samples=float(seen),
        )
    longest = max(windows.names, key=parse_duration)
    if windows.count_traces(service, "", longest) < max(rule.min_samples, 1):
        return None
    return ConditionValue(
        tested=0.0, value=0.0, lower=None, upper=None, samples=0, effective_samples=0.0
    )


# (metric, scorer) pairs by (rule, service)
_AlertedPairs = Mapping[tuple[str, str], set[tuple[str, str]]]


@dataclass(frozen=True)
class DueRules:
    """The rules whose condition may have another value than at the last evaluation.

    Args:
        changed: The windows that have changed, by service.
        refused: Services all of whose rules are due.
        held: (rule, service) of the alerts that are held.
    """

    changed: Mapping[str, Collection[str]]
    refused: Collection[str]
    held: Collection[tuple[str, str]]

    @cached_property
    def services(self) -> set[str]:
        """The services with a rule that is due."""
        held = (service for _, service in self.held)
        return {*self.changed, *self.refused, *held}

    def contains(self, rule: AlertRule, service: str) -> bool:
        """Return whether a rule is due for a service."""
        if service in self.refused or (rule.name, service) in self.held:
            return True
        windows = self.changed.get(service, ())
        # an absence rule reads the longest window as well
        return bool(windows) and (
            rule.absence or rule.window in windows or rule.relative_to in windows
        )


class RuleTargets:
    """The services and subjects that rules cover."""

    def __init__(self, rules: Sequence[AlertRule]) -> None:
        self._rules = rules
        self._covering: dict[str, list[AlertRule]] = {}  # by service

    def iterate(
        self,
        windows: Windows,
        alerted: _AlertedPairs,
        due: DueRules | None = None,
    ) -> Iterator[tuple[AlertRule, str, str]]:
        """Yield every rule that is due for a service with each subject it covers there.

        The order is fixed. The subject is a segment, or of an unscored rule "metric scorer". A rule
        is left out if it has no series to read; an unscored rule covers the pairs that it has
        `alerted` on, too.
        """
        services = sorted(windows.services())
        if due is not None:
            services = [service for service in services if service in due.services]
        if len(self._covering) > 2 * len(services) + 1_000:  # services come and go
            self._covering.clear()
        names = set(windows.names)
        # Not rule by rule: the series of a service are read once in each round.
        for severity in ("critical", "warning"):
            for service in services:
                series = _ServiceSeries(windows, service)
                for rule in self._rules_of(service):
                    if rule.severity != severity or rule.window not in names:
                        continue
                    if due is None or due.contains(rule, service):
                        for subject in self._subjects(rule, series, alerted):
                            yield rule, service, subject

    def _rules_of(self, service: str) -> list[AlertRule]:
        rules = self._covering.get(service)
        if rules is None:
            rules = self._covering[service] = [rule for rule in self._rules if rule.covers(service)]
        return rules

    def _subjects(
        self, rule: AlertRule, series: _ServiceSeries, alerted: _AlertedPairs
    ) -> Iterator[str]:
        if rule.unscored is not None:
            failing = set(series.windows.failing(series.service, rule.window))
            failing |= alerted.get((rule.name, series.service), set())
            for metric, scorer in sorted(failing):
                if rule.unscored.matches(metric, scorer):
                    yield f"{metric} {scorer}"
        else:
            prefix = f"{rule.segment}="
            segments = [""]
            if rule.segment is not None:
                segments = [name for name in series.segments if name.startswith(prefix)]
            for segment in segments:
                if rule.metric is None or (rule.metric, rule.scorer) in series.pairs(segment):
                    yield segment


class _ServiceSeries:
    """The segments and series of a service, each read from the windows at most once."""

    def __init__(self, windows: Windows, service: str) -> None:
        self.windows = windows
        self.service = service
        self._pairs: dict[str, set[tuple[str, str]]] = {}

    @cached_property
    def segments(self) -> list[str]:
        return sorted(self.windows.segments(self.service))

    def pairs(self, segment: str) -> set[tuple[str, str]]:
        """Return (metric, scorer without fingerprint) of the series of a segment."""
        if segment not in self._pairs:
            self._pairs[segment] = {
                (metric, split_scorer(scorer)[0])
                for metric, scorer in self.windows.series(self.service, segment)
            }
        return self._pairs[segment]
