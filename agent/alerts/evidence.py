"""Evidence of an alert: the value before, the segment behind it, the fingerprint, the worst traces.

The value before is read when the condition begins, since later the trouble itself is in it. The
segment is looked for when the alert fires, or as soon after as one stands out: that costs two sums
of each segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.error_budgets import ErrorBudgets, ObjectiveEvidence
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.clocks import parse_duration, parse_whole_seconds
from ragmeter.core.series import split_scorer
from ragmeter.drift.moments import (
    MIN_SEGMENT_SAMPLES,
    SEGMENT_LEVEL,
    SampleMoments,
    find_moved_segment,
    rest_moments,
    sample_moments,
    squared_error,
)
from ragmeter.windows.failures import FailedShare, failed_worst_key
from ragmeter.windows.log_histogram import LogHistogram, cell_index
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import LATENCY_METRIC

MAX_WORST = 5

# Segments compared, the largest: each costs some 20 us, once for an alert.
_MAX_SEGMENTS = 64

_NO_SAMPLES = SampleMoments(0.0, 0.0, 0.0)

_BeforeAndNow = tuple[SampleMoments, SampleMoments]


class AlertOrigin(NamedTuple):
    """The segment behind an alert and a description of how it differs; both may be empty."""

    segment: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceReader:
    """Reads the evidence of alerts of rules; `budgets` is needed for burn rules only."""

    windows: Windows
    budgets: ErrorBudgets | None

    def find_baseline(self, rule: AlertRule, alert: Alert) -> float | None:
        """Return the value before: that of the longest window without the rule's own."""
        windows, service, window = self.windows, alert.service, alert.window
        if rule.absence:
            longest = max(windows.names, key=parse_duration)
            if longest == window:
                return None
            share = parse_duration(window) / parse_duration(longest)
            return windows.count_traces(service, "", longest) * share
        if rule.burn is not None:
            assert self.budgets is not None
            slo = alert.segment.partition("=")[2]
            return self.budgets.ratio_before(service, slo, parse_whole_seconds(window))
        if rule.latency is not None:
            quantile = rule.latency.quantile
            hist = windows.histogram_before(service, alert.segment, rule.latency.stage, window)
            # as of all quantiles: one that has a sample beyond it
            return hist.quantile(quantile) if hist and hist.n * (1 - quantile) >= 1 else None
        pair = (alert.metric, alert.scorer)
        if rule.unscored is not None:
            failed = windows.failed_before(service, "", *pair, window)
            return failed.value if failed and failed.samples >= MIN_SEGMENT_SAMPLES else None
        cell = windows.sums_before(service, alert.segment, *pair, window)
        return None if cell is None else windows.value_of(cell, service, *pair)

    def find_worst_traces(self, rule: AlertRule, alert: Alert) -> list[str]:
        """Return the ids of the worst traces, of several kinds (error, timeout) in turn.

        A trace on the good side of the limit is left out: where three of a hundred traces failed,
        the fourth worst is a success and no evidence.
        """
        segment = alert.segment if rule.segment is not None else ""  # an objective is no segment
        window = self._window(alert)
        kinds = [
            [
                trace.trace_id
                for trace in self.windows.worst(
                    alert.service, kind.metric, kind.scorer, window, MAX_WORST, segment=segment
                )
                if (trace.value > kind.limit if kind.above else trace.value < kind.limit)
            ]
            for kind in self._evidence_series(rule, alert)
        ]
        ids = [trace_id for row in zip_longest(*kinds) for trace_id in row if trace_id is not None]
        return list(dict.fromkeys(ids))[:MAX_WORST]

    def find_fingerprint(self, rule: AlertRule, alert: Alert) -> str:
        """Return the fingerprint of the judge or model that scores now; empty if it has none."""
        series = [(one.metric, one.scorer) for one in self._evidence_series(rule, alert)]
        if rule.unscored is not None:
            series = [(alert.metric, alert.scorer)]
        marks = (split_scorer(self.windows.current_scorer(*pair))[1] for pair in series)
        return next(filter(None, marks), "")

    def find_origin(self, rule: AlertRule, alert: Alert) -> AlertOrigin:
        """Return the segment that moved most into trouble, if it moved unlike the rest.

        Without a known past it is the segment that is worst, if it is so beyond chance. Of an
        alert on a segment it is that segment.
        """
        if rule.segment is not None:
            return AlertOrigin(alert.segment)
        window = self._window(alert)
        largest = sorted(
            self.windows.segments(alert.service),
            key=lambda name: (-self.windows.count_traces(alert.service, name, window), name),
        )[:_MAX_SEGMENTS]
        series = next(iter(self._evidence_series(rule, alert)), None)
        if rule.unscored is not None:
            series = ObjectiveEvidence(alert.metric, alert.scorer, 0.0)
        if not largest or series is None:
            return AlertOrigin()
        failures = rule.unscored is not None
        moments = {
            name: self._before_and_now(alert.service, name, series, window, failures)
            for name in ("", *largest)
        }
        return _moved_segment(moments.pop(""), moments, series.above)

    def _before_and_now(
        self, service: str, segment: str, series: ObjectiveEvidence, window: str, failures: bool
    ) -> _BeforeAndNow:
        windows = self.windows
        if series.metric == LATENCY_METRIC:
            stage = (service, segment, series.scorer, window)
            return (
                _share_above(windows.histogram_before(*stage), series.limit),
                _share_above(windows.histogram(*stage), series.limit),
            )
        args = (service, segment, series.metric, series.scorer, window)
        if failures:
            return _share(windows.failed_before(*args)), _share(windows.failed(*args))
        return sample_moments([windows.sums_before(*args)]), sample_moments([windows.cell(*args)])

    def _evidence_series(self, rule: AlertRule, alert: Alert) -> Iterable[ObjectiveEvidence]:
        """Return the series that an alert is about, and beyond which limit it is bad."""
        above = rule.op in (">", ">=")
        if rule.absence:
            return ()
        if rule.burn is not None:
            assert self.budgets is not None
            return self.budgets.evidence(alert.segment.partition("=")[2])
        if rule.unscored is not None:
            return (ObjectiveEvidence(*failed_worst_key(alert.metric, alert.scorer), 0.0),)
        if rule.latency is not None:
            return (ObjectiveEvidence(LATENCY_METRIC, rule.latency.stage, rule.threshold, above),)
        # the alert's own threshold: that of a rule with `relative_to` is a multiple
        limit = rule.threshold if rule.relative_to is None else alert.threshold
        return (ObjectiveEvidence(alert.metric, alert.scorer, limit, above),)

    def _window(self, alert: Alert) -> str:
        """Return the alert's window; of an error budget the longest that is not longer."""
        if alert.window in self.windows.names:
            return alert.window
        length = parse_duration(alert.window)
        names = sorted(self.windows.names, key=parse_duration)
        return [names[0], *(name for name in names if parse_duration(name) <= length)][-1]


def _moved_segment(
    service: _BeforeAndNow, segments: Mapping[str, _BeforeAndNow], above: bool
) -> AlertOrigin:
    if service[0].n < MIN_SEGMENT_SAMPLES:
        return _furthest_segment(
            service[1], {name: now for name, (_, now) in segments.items()}, above
        )
    worse = {
        name: (old, new)
        for name, (old, new) in segments.items()
        if (new.mean > old.mean if above else new.mean < old.mean)
    }
    move = find_moved_segment(service, worse)
    if move is None:
        return AlertOrigin()
    return AlertOrigin(move.segment if move.distinct else "", move.describe())


def _furthest_segment(
    service: SampleMoments, segments: Mapping[str, SampleMoments], above: bool
) -> AlertOrigin:
    """Return the segment that is furthest from the rest on the bad side, by its standard error."""
    distances: list[tuple[float, str, float, float]] = []
    for name, own in segments.items():
        rest = rest_moments(service, own)
        if own.n < MIN_SEGMENT_SAMPLES or rest is None:
            continue
        error = squared_error(own) + squared_error(rest)
        z = (own.mean - rest.mean) / math.sqrt(error) * (1 if above else -1)
        distances.append((-z, name, own.mean, rest.mean))
    if not distances or min(distances)[0] >= 0:
        return AlertOrigin()
    z, name, own_mean, rest_mean = min(distances)
    p = min(1.0, len(distances) * math.erfc(-z / math.sqrt(2)))
    if p > SEGMENT_LEVEL:
        return AlertOrigin()
    description = f"{name} is at {own_mean:.3g}, the rest at {rest_mean:.3g}"
    return AlertOrigin(name, f"{description} (p = {p:.1g} over {len(distances)} segments)")


def _share(failed: FailedShare | None) -> SampleMoments:
    if failed is None:
        return _NO_SAMPLES
    share = failed.value
    return SampleMoments(failed.effective_samples, share, share * (1 - share))


def _share_above(hist: LogHistogram | None, limit: float) -> SampleMoments:
    """Return the share of a latency's values above a limit."""
    if hist is None or not hist.n or not math.isfinite(limit):
        return _NO_SAMPLES
    total = sum(hist.counts)
    share = sum(hist.counts[cell_index(max(limit, 0.0)) + 1 :]) / total
    return SampleMoments(total * total / hist.w2, share, share * (1 - share))
