"""Copy what a scrape needs from the running agent while its lock is held.

The lock is taken once for the counters and once per service, so that a scrape of many services
never keeps the writer waiting for longer than one of them takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragmeter.core.counters import CounterKey, Exemplar, GaugeSample
from ragmeter.core.series import is_overflow_series
from ragmeter.windows.intervals import is_assisted

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentHealth, AgentView
    from ragmeter.alerts.alert import Alert
    from ragmeter.windows.series import Estimate, Quantile

RESERVED = frozenset({"service", "scorer", "fingerprint", "window", "stage", "quantile", "k", "le"})


@dataclass(slots=True)
class Snapshot:
    """Numbers of one moment; estimates are there only where the evidence carries them."""

    now: float | None
    health: AgentHealth
    services: list[str]
    counters: list[tuple[CounterKey, float]]
    exemplars: dict[CounterKey, Exemplar]
    alerts: list[Alert]
    segments: tuple[str, ...]
    waiting: dict[tuple[str, str], int]
    """Results that slow tiers owe, by (metric, scorer)."""
    instruments: list[tuple[tuple[str, str], ...]]
    """Labels of each judge as it is asked now."""
    gauges: list[GaugeSample]
    """(name, label pairs, value) of the slow tiers."""
    estimates: list[tuple[str, str, str, str, str, Estimate]] = field(default_factory=list)
    """(service, segment, metric, scorer with its fingerprint, window, estimate)"""
    unscored: list[tuple[str, str, str, str, float]] = field(default_factory=list)
    """(service, metric, scorer with its fingerprint, window, share), of whole services"""
    quantiles: list[tuple[str, str, str, str, list[Quantile]]] = field(default_factory=list)
    """(service, segment, stage, window, quantiles)"""


def take_snapshot(reading: AgentView) -> Snapshot:
    """A copy of everything that is exported. Estimates and quantiles are immutable: kept as are."""
    health = reading.health()
    with reading.lock():
        windows = reading.windows
        names = windows.names
        snapshot = Snapshot(
            now=windows.now,
            health=health,
            services=windows.services(),
            counters=list(reading.counters.items()),
            exemplars=dict(reading.counters.exemplars),
            alerts=[copy(alert) for alert in reading.alerts()],
            segments=tuple(reading.segments),
            waiting=dict(reading.waiting),
            instruments=[tuple(labels.items()) for labels in reading.instruments()],
            gauges=list(reading.gauges()),
        )
    estimates, quantiles = snapshot.estimates, snapshot.quantiles
    for service in snapshot.services:
        with reading.lock():
            for segment in ("", *windows.segments(service)):
                for metric, scorer in windows.series(service, segment):
                    if is_overflow_series(scorer):
                        continue
                    series = windows.current_scorer(metric, scorer)
                    for window in names:
                        found = windows.estimate(service, segment, metric, scorer, window)
                        if found is not None:
                            estimates.append((service, segment, metric, series, window, found))
                        if segment or is_assisted(series):
                            continue
                        # also where nothing at all could be scored, and so no estimate is
                        missing = windows.unscored(service, "", metric, series, window)
                        if missing is not None:
                            snapshot.unscored.append((service, metric, series, window, missing[0]))
                for stage in windows.stages(service, segment):
                    for window in names:
                        values = windows.quantiles(service, segment, stage, window)
                        if values:
                            quantiles.append((service, segment, stage, window, values))
    return snapshot


def split_segment(segment: str, tags: Sequence[str]) -> tuple[str, str]:
    """("model", "gpt-4o") of "model=gpt-4o"; a tag may itself hold `=`, so known tags go first."""
    for tag in sorted(tags, key=len, reverse=True):
        if segment.startswith(f"{tag}="):
            return tag, segment[len(tag) + 1 :]
    tag, _, value = segment.partition("=")
    return tag, value


def segment_labels(tags: Sequence[str]) -> dict[str, str]:
    """Label name by tag: what Prometheus forbids becomes `_`; no two tags share a name.

    A name that our own labels use, or that begins with a digit or `_` (`__` is reserved), gets
    the prefix `tag_`.
    """
    out: dict[str, str] = {}
    for tag in tags:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", tag)
        if name in RESERVED or not name or name[0].isdigit() or name[0] == "_":
            name = f"tag_{name}"
        unique, suffix = name, 2
        while unique in out.values():
            unique, suffix = f"{name}_{suffix}", suffix + 1
        out[tag] = unique
    return out
