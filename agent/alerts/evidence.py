"""Evidence of an alert: the value before, the segment behind it, the fingerprint and the worst traces.

Pure reading of the windows. The level before is read when the condition begins, for later the
trouble itself is in it; the segment when the alert fires or as soon after as one stands out, for
it costs two sums of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.conditions import ErrorBudgetsLike, WindowsLike
from ragmeter.alerts.error_budgets import ObjectiveEvidence
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
from ragmeter.windows.failures import failed_worst_key
from ragmeter.windows.log_histogram import LogHistogram, cell_index
from ragmeter.windows.worst import LATENCY_METRIC

MAX_WORST = 5

_MAX_SEGMENTS = 64
"""Segments compared, the largest: each costs some 20 us, once for an alert."""

_NO_SAMPLES = SampleMoments(0.0, 0.0, 0.0)


class AlertOrigin(NamedTuple):
    """The segment that is behind an alert, and in words how it differs; both may be empty."""

    segment: str = ""
    words: str = ""


def find_baseline(
    rule: AlertRule, alert: Alert, windows: WindowsLike, budgets: ErrorBudgetsLike | None
) -> float | None:
    """What the value was before: read from the longest window without the rule's own."""
    service, segment, window = alert.service, alert.segment, alert.window
    if rule.absence:
        longest = max(windows.names, key=parse_duration)
        if longest == window:
            return None
        share = parse_duration(window) / parse_duration(longest)
        return windows.count_traces(service, "", longest) * share
    if rule.burn is not None:
        assert budgets is not None
        return budgets.ratio_before(service, segment.partition("=")[2], parse_whole_seconds(window))
    if rule.latency is not None:
        hist = windows.histogram_before(service, segment, rule.latency.stage, window)
        # as of all quantiles: one that has a sample beyond it
        known = hist is not None and hist.n * (1 - rule.latency.quantile) >= 1
        return hist.quantile(rule.latency.quantile) if hist is not None and known else None
    if rule.unscored is not None:
        failed = windows.failed_before(service, "", alert.metric, alert.scorer, window)
        return (
            failed.value if failed is not None and failed.samples >= MIN_SEGMENT_SAMPLES else None
        )
    cell = windows.sums_before(service, segment, alert.metric, alert.scorer, window)
    return None if cell is None else windows.value_of(cell, service, alert.metric, alert.scorer)


def find_worst_traces(
    rule: AlertRule, alert: Alert, windows: WindowsLike, budgets: ErrorBudgetsLike | None
) -> list[str]:
    """The worst traces, but none that is on the good side of the limit: where three of a hundred
    traces failed, the fourth worst is a success and no evidence. Of several kinds (error, timeout)
    in turn."""
    window = _window(alert, windows)
    kinds = [
        [
            found.trace_id
            for found in windows.worst(
                alert.service, metric, place, window, MAX_WORST, segment=_segment(rule, alert)
            )
            if (found.value > limit if above else found.value < limit)
        ]
        for metric, place, limit, above in _evidence_series(rule, alert, budgets)
    ]
    ids = [found for row in zip_longest(*kinds) for found in row if found is not None]
    return list(dict.fromkeys(ids))[:MAX_WORST]


def find_fingerprint(
    rule: AlertRule, alert: Alert, windows: WindowsLike, budgets: ErrorBudgetsLike | None
) -> str:
    """Of the judge or model that scores now; empty where there is none."""
    if rule.unscored is not None:
        pairs = [(alert.metric, alert.scorer)]
    else:
        pairs = [(found.metric, found.scorer) for found in _evidence_series(rule, alert, budgets)]
    marks = [split_scorer(windows.current_scorer(metric, scorer))[1] for metric, scorer in pairs]
    return next(filter(None, marks), "")


def find_origin(
    rule: AlertRule, alert: Alert, windows: WindowsLike, budgets: ErrorBudgetsLike | None
) -> AlertOrigin:
    """The segment that moved most into trouble, where it moved unlike the rest; where nothing is
    known of before, the one that is worst, where it is beyond chance. Of an alert on a segment
    that segment."""
    if rule.segment is not None:
        return AlertOrigin(alert.segment)
    window = _window(alert, windows)
    largest = sorted(
        windows.segments(alert.service),
        key=lambda name: (-windows.count_traces(alert.service, name, window), name),
    )[:_MAX_SEGMENTS]
    if not largest:
        return AlertOrigin()
    if rule.unscored is not None:
        watched = [ObjectiveEvidence(alert.metric, alert.scorer, 0.0)]
    else:
        watched = list(_evidence_series(rule, alert, budgets))[:1]
    for one in watched:
        parts = {
            name: _before_and_after(rule, alert.service, name, one, window, windows)
            for name in ("", *largest)
        }
        return _moved_segment(parts.pop(""), parts, one.above)
    return AlertOrigin()


def _moved_segment(
    service: tuple[SampleMoments, SampleMoments],
    parts: Mapping[str, tuple[SampleMoments, SampleMoments]],
    above: bool,
) -> AlertOrigin:
    if service[0].n < MIN_SEGMENT_SAMPLES:
        return _furthest_segment(service[1], {name: pair[1] for name, pair in parts.items()}, above)
    worse = {
        name: (old, new)
        for name, (old, new) in parts.items()
        if (new.mean > old.mean if above else new.mean < old.mean)
    }
    move = find_moved_segment(service, worse)
    if move is None:
        return AlertOrigin()
    return AlertOrigin(move.segment if move.distinct else "", move.describe())


def _furthest_segment(
    service: SampleMoments, parts: Mapping[str, SampleMoments], above: bool
) -> AlertOrigin:
    """The segment that is furthest from the rest on the bad side, by its standard error."""
    found: list[tuple[float, str, float, float]] = []
    for name, own in parts.items():
        rest = rest_moments(service, own)
        if own.n < MIN_SEGMENT_SAMPLES or rest is None:
            continue
        error = squared_error(own) + squared_error(rest)
        z = (own.mean - rest.mean) / math.sqrt(error) * (1 if above else -1)
        found.append((-z, name, own.mean, rest.mean))
    if not found or min(found)[0] >= 0:
        return AlertOrigin()
    z, name, own_mean, rest_mean = min(found)
    p = min(1.0, len(found) * math.erfc(-z / math.sqrt(2)))
    if p > SEGMENT_LEVEL:
        return AlertOrigin()
    words = f"{name} is at {own_mean:.3g}, the rest at {rest_mean:.3g}"
    return AlertOrigin(name, f"{words} (p = {p:.1g} over {len(found)} segments)")


def _before_and_after(
    rule: AlertRule,
    service: str,
    segment: str,
    one: ObjectiveEvidence,
    window: str,
    windows: WindowsLike,
) -> tuple[SampleMoments, SampleMoments]:
    """How a segment was before, and how it is."""
    if one.metric == LATENCY_METRIC:
        stage = one.scorer
        return (
            _share_above(windows.histogram_before(service, segment, stage, window), one.limit),
            _share_above(windows.histogram(service, segment, stage, window), one.limit),
        )
    args = (service, segment, one.metric, one.scorer, window)
    if rule.unscored is not None:
        both = [windows.failed_before(*args), windows.failed(*args)]
        old, new = (
            _NO_SAMPLES
            if item is None
            else SampleMoments(item.effective_samples, item.value, item.value * (1 - item.value))
            for item in both
        )
        return old, new
    return sample_moments([windows.sums_before(*args)]), sample_moments([windows.cell(*args)])


def _share_above(hist: LogHistogram | None, limit: float) -> SampleMoments:
    """The share of a latency's values above a limit."""
    if hist is None or not hist.n or not math.isfinite(limit):
        return _NO_SAMPLES
    total = sum(hist.counts)
    share = sum(hist.counts[cell_index(max(limit, 0.0)) + 1 :]) / total
    return SampleMoments(total * total / hist.w2, share, share * (1 - share))


def _evidence_series(
    rule: AlertRule, alert: Alert, budgets: ErrorBudgetsLike | None
) -> Iterable[ObjectiveEvidence]:
    """Where the windows keep what an alert is about, and beyond which limit it is bad."""
    above = rule.op in (">", ">=")
    if rule.absence:
        return ()
    if rule.burn is not None:
        assert budgets is not None
        return budgets.evidence(alert.segment.partition("=")[2])
    if rule.unscored is not None:
        return (ObjectiveEvidence(*failed_worst_key(alert.metric, alert.scorer), 0.0),)
    if rule.latency is not None:
        return (ObjectiveEvidence(LATENCY_METRIC, rule.latency.stage, rule.threshold, above),)
    return (ObjectiveEvidence(alert.metric, alert.scorer, rule.threshold, above),)


def _segment(rule: AlertRule, alert: Alert) -> str:
    """The segment of the windows that an alert is about; an objective is none."""
    return alert.segment if rule.segment is not None else ""


def _window(alert: Alert, windows: WindowsLike) -> str:
    """The alert's window; of an error budget the longest configured one that is not longer."""
    if alert.window in windows.names:
        return alert.window
    length = parse_duration(alert.window)
    names = sorted(windows.names, key=parse_duration)
    return max(
        (name for name in names if parse_duration(name) <= length),
        default=names[0],
        key=parse_duration,
    )
