"""What an alert brings along: how it was before, where it is worst, who says so, and which traces.

Pure reading of the windows. The level before is read when the condition begins, for later the
trouble itself is in it; the segment when the alert fires or as soon after as one stands out, for
it costs two sums of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple

from agent.alerts.alert import Alert
from agent.alerts.burn import Evidence
from agent.alerts.conditions import BudgetsLike, WindowsLike
from agent.alerts.durations import parse_duration, whole_seconds
from agent.alerts.rules import Rule
from agent.drift.reading import part_of
from agent.drift.segments import LEAST, LEVEL, Part, rest_of, squared_error, top_segment
from agent.fingerprints import split_scorer
from agent.windows.failures import place_of
from agent.windows.loghist import LogHist, cell_of
from agent.windows.worst import LATENCY

__all__ = ["MAX_WORST", "Origin", "baseline", "fingerprint", "origin", "worst"]

MAX_WORST = 5

MOST = 64
"""Segments compared, the largest: each costs some 20 us, once for an alert."""

NOTHING = Part(0.0, 0.0, 0.0)


class Origin(NamedTuple):
    """The segment that is behind an alert, and in words how it differs; both may be empty."""

    segment: str = ""
    words: str = ""


def baseline(
    rule: Rule, alert: Alert, windows: WindowsLike, budgets: BudgetsLike | None
) -> float | None:
    """What the value was before: read from the longest window without the rule's own."""
    service, segment, window = alert.service, alert.segment, alert.window
    if rule.absence:
        longest = max(windows.names, key=parse_duration)
        if longest == window:
            return None
        share = parse_duration(window) / parse_duration(longest)
        return windows.seen(service, "", longest) * share
    if rule.burn is not None:
        assert budgets is not None
        return budgets.before(service, segment.partition("=")[2], whole_seconds(window))
    if rule.latency is not None:
        hist = windows.before_latency(service, segment, rule.latency.stage, window)
        # as of all quantiles: one that has a sample beyond it
        known = hist is not None and hist.n * (1 - rule.latency.quantile) >= 1
        return hist.quantile(rule.latency.quantile) if hist is not None and known else None
    if rule.unscored is not None:
        failed = windows.before_failed(service, "", alert.metric, alert.scorer, window)
        return failed.value if failed is not None and failed.samples >= LEAST else None
    cell = windows.before(service, segment, alert.metric, alert.scorer, window)
    return None if cell is None else windows.value_of(cell, service, alert.metric, alert.scorer)


def worst(rule: Rule, alert: Alert, windows: WindowsLike, budgets: BudgetsLike | None) -> list[str]:
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
        for metric, place, limit, above in _watched(rule, alert, budgets)
    ]
    ids = [found for row in zip_longest(*kinds) for found in row if found is not None]
    return list(dict.fromkeys(ids))[:MAX_WORST]


def fingerprint(rule: Rule, alert: Alert, windows: WindowsLike, budgets: BudgetsLike | None) -> str:
    """Of the judge or model that scores now; empty where there is none."""
    if rule.unscored is not None:
        pairs = [(alert.metric, alert.scorer)]
    else:
        pairs = [(found.metric, found.scorer) for found in _watched(rule, alert, budgets)]
    marks = [split_scorer(windows.named(metric, scorer))[1] for metric, scorer in pairs]
    return next(filter(None, marks), "")


def origin(rule: Rule, alert: Alert, windows: WindowsLike, budgets: BudgetsLike | None) -> Origin:
    """The segment that moved most into trouble, where it moved unlike the rest; where nothing is
    known of before, the one that is worst, where it is beyond chance. Of an alert on a segment
    that segment."""
    if rule.segment is not None:
        return Origin(alert.segment)
    window = _window(alert, windows)
    largest = sorted(
        windows.segments(alert.service),
        key=lambda name: (-windows.seen(alert.service, name, window), name),
    )[:MOST]
    if not largest:
        return Origin()
    if rule.unscored is not None:
        watched = [Evidence(alert.metric, alert.scorer, 0.0)]
    else:
        watched = list(_watched(rule, alert, budgets))[:1]
    for one in watched:
        parts = {
            name: _pair(rule, alert.service, name, one, window, windows) for name in ("", *largest)
        }
        return _moved(parts.pop(""), parts, one.above)
    return Origin()


def _moved(
    service: tuple[Part, Part], parts: Mapping[str, tuple[Part, Part]], above: bool
) -> Origin:
    if service[0].n < LEAST:
        return _apart(service[1], {name: pair[1] for name, pair in parts.items()}, above)
    worse = {
        name: (old, new)
        for name, (old, new) in parts.items()
        if (new.mean > old.mean if above else new.mean < old.mean)
    }
    move = top_segment(service, worse)
    if move is None:
        return Origin()
    return Origin(move.segment if move.distinct else "", move.words())


def _apart(service: Part, parts: Mapping[str, Part], above: bool) -> Origin:
    """The segment that is furthest from the rest on the bad side, by its standard error."""
    found: list[tuple[float, str, float, float]] = []
    for name, own in parts.items():
        rest = rest_of(service, own)
        if own.n < LEAST or rest is None:
            continue
        error = squared_error(own) + squared_error(rest)
        z = (own.mean - rest.mean) / math.sqrt(error) * (1 if above else -1)
        found.append((-z, name, own.mean, rest.mean))
    if not found or min(found)[0] >= 0:
        return Origin()
    z, name, own_mean, rest_mean = min(found)
    p = min(1.0, len(found) * math.erfc(-z / math.sqrt(2)))
    if p > LEVEL:
        return Origin()
    words = f"{name} is at {own_mean:.3g}, the rest at {rest_mean:.3g}"
    return Origin(name, f"{words} (p = {p:.1g} over {len(found)} segments)")


def _pair(
    rule: Rule, service: str, segment: str, one: Evidence, window: str, windows: WindowsLike
) -> tuple[Part, Part]:
    """How a segment was before, and how it is."""
    if one.metric == LATENCY:
        stage = one.scorer
        return (
            _beyond(windows.before_latency(service, segment, stage, window), one.limit),
            _beyond(windows.histogram(service, segment, stage, window), one.limit),
        )
    args = (service, segment, one.metric, one.scorer, window)
    if rule.unscored is not None:
        both = [windows.before_failed(*args), windows.failed(*args)]
        old, new = (
            NOTHING
            if item is None
            else Part(item.effective_samples, item.value, item.value * (1 - item.value))
            for item in both
        )
        return old, new
    return part_of([windows.before(*args)]), part_of([windows.cell(*args)])


def _beyond(hist: LogHist | None, limit: float) -> Part:
    """The share of a latency's values above a limit."""
    if hist is None or not hist.n or not math.isfinite(limit):
        return NOTHING
    total = sum(hist.counts)
    share = sum(hist.counts[cell_of(max(limit, 0.0)) + 1 :]) / total
    return Part(total * total / hist.w2, share, share * (1 - share))


def _watched(rule: Rule, alert: Alert, budgets: BudgetsLike | None) -> Iterable[Evidence]:
    """Where the windows keep what an alert is about, and beyond which limit it is bad."""
    above = rule.op in (">", ">=")
    if rule.absence:
        return ()
    if rule.burn is not None:
        assert budgets is not None
        return budgets.evidence(alert.segment.partition("=")[2])
    if rule.unscored is not None:
        return (Evidence(*place_of(alert.metric, alert.scorer), 0.0),)
    if rule.latency is not None:
        return (Evidence(LATENCY, rule.latency.stage, rule.threshold, above),)
    return (Evidence(alert.metric, alert.scorer, rule.threshold, above),)


def _segment(rule: Rule, alert: Alert) -> str:
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
