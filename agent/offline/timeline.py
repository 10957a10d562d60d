"""The timeline of a backtest: services and their alerts over event time, ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.offline.backtest import EstimatePoint


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """One time that an alert was pending or firing; times are event times.

    Args:
        pending: Begin.
        fired: Time from which it fired; None if it did not.
        resolved: End; None if it lasted to the end of the backtest.
        title: Hint that a browser shows.
    """

    pending: float
    fired: float | None
    resolved: float | None
    title: str = ""


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One alert of one service with its estimates.

    Args:
        name: Name of the rule.
        severity: Severity of the rule.
        about: Metric, segment, window and condition.
        spans: Times at which it was pending or fired.
        points: (time, value, lower, upper) in order; NaN for a gap.
        threshold: Value beyond which it fires.
        spec: How its numbers are written; None for an unknown metric.
        seconds: Its numbers are seconds.
    """

    name: str
    severity: str
    about: str
    spans: Sequence[AlertSpan]
    points: Sequence[EstimatePoint] = ()
    threshold: float | None = None
    spec: MetricSpec | None = None
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """Services in the order in which they are drawn, each with its lanes."""

    title: str
    start: float
    end: float
    services: Sequence[tuple[str, Sequence[TimelineLane]]]
    notes: Sequence[str] = field(default_factory=tuple)
