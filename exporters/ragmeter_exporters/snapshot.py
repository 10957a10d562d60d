"""Copy what a scrape or the JSON API needs from the running agent while its lock is held.

The lock is taken once for the counters, and then for some services at a time (`read_each`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from ragmeter.aggregate.agent_view import AgentHealth, AgentView
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import CounterKey, Exemplar, GaugeSample
from ragmeter.core.json_values import finite_values
from ragmeter.core.series import is_overflow_series, series_labels
from ragmeter.parts.views import Incident
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows

from ragmeter_exporters.page.views import base_view, read_each

RESERVED = frozenset({"service", "scorer", "fingerprint", "window", "stage", "quantile", "k", "le"})


@dataclass(slots=True)
class Snapshot:
    """Numbers of one moment; scorers carry their fingerprint.

    Args:
        now: Stream time as Unix time; None before the first trace.
        segments: Configured segment tags.
        waiting: Results that slow tiers have still to bring, by (metric, scorer).
        instruments: Labels of each judge as it is asked now.
        gauges: (name, label pairs, value) of the slow tiers and other parts.
        estimates: (service, segment, metric, scorer, window, estimate), where the evidence
            carries one.
        unscored: (service, metric, scorer, window, share), of whole services.
        quantiles: (service, segment, stage, window, quantiles).
    """

    now: float | None
    health: AgentHealth
    services: list[str]
    counters: list[tuple[CounterKey, float]]
    exemplars: dict[CounterKey, Exemplar]
    alerts: list[Alert]
    incidents: list[Incident]
    segments: tuple[str, ...]
    waiting: dict[tuple[str, str], int]
    instruments: list[tuple[tuple[str, str], ...]]
    gauges: list[GaugeSample]
    estimates: list[tuple[str, str, str, str, str, Estimate]] = field(default_factory=list)
    unscored: list[tuple[str, str, str, str, float]] = field(default_factory=list)
    quantiles: list[tuple[str, str, str, str, list[Quantile]]] = field(default_factory=list)


def take_snapshot(agent: AgentView, *, detail: bool = False) -> Snapshot:
    """Copy what is exported; estimates and quantiles are immutable and not copied.

    Args:
        agent: The agent.
        detail: Copy the estimates of every metric, and the latency of segments, too.
    """
    health = agent.health()
    with agent.lock():
        windows = agent.windows
        # Before the counters: a trace that is received meanwhile, for which no sender waits for
        # the lock, is both open and counted then, and never neither.
        gauges = list(agent.gauges())
        snapshot = Snapshot(
            now=windows.now,
            health=health,
            services=windows.services(),
            counters=list(agent.counters.items()),
            exemplars=dict(agent.counters.exemplars),
            alerts=[copy(alert) for alert in agent.alerts()],
            incidents=list(agent.incidents()),
            segments=tuple(agent.segments),
            waiting=dict(agent.waiting),
            instruments=[tuple(labels.items()) for labels in agent.instruments()],
            gauges=gauges,
        )
    read_each(
        agent,
        snapshot.services,
        lambda service: _copy_service(snapshot, windows, service, detail=detail),
    )
    return snapshot


def _copy_service(snapshot: Snapshot, windows: Windows, service: str, *, detail: bool) -> None:
    for segment in ("", *windows.segments(service)) if detail else ("",):
        if detail:
            _copy_estimates(snapshot, windows, service, segment)
        for stage in windows.stages(service, segment):
            for window in windows.names:
                if values := windows.quantiles(service, segment, stage, window):
                    snapshot.quantiles.append((service, segment, stage, window, values))


def _copy_estimates(snapshot: Snapshot, windows: Windows, service: str, segment: str) -> None:
    for metric, scorer in windows.series(service, segment):
        if is_overflow_series(scorer):
            continue
        series = windows.current_scorer(metric, scorer)
        for window in windows.names:
            estimate = windows.estimate(service, segment, metric, scorer, window)
            if estimate is not None:
                snapshot.estimates.append((service, segment, metric, series, window, estimate))
            if segment:
                continue
            if estimate is not None and series == scorer:
                share: float | None = estimate.unscored
            else:  # nothing at all could be scored, or results without a version count, too
                missing = windows.unscored(service, "", metric, series, window)
                share = missing and missing[0]
            if share is not None:
                snapshot.unscored.append((service, metric, series, window, share))


def split_segment(segment: str, tags: Sequence[str]) -> tuple[str, str]:
    """Split "model=gpt-4o" into tag and value; as a tag may hold `=`, known tags go first."""
    for tag in sorted(tags, key=len, reverse=True):
        if segment.startswith(f"{tag}="):
            return tag, segment[len(tag) + 1 :]
    tag, _, value = segment.partition("=")
    return tag, value


def segment_labels(tags: Sequence[str]) -> dict[str, str]:
    """Return a label name for each tag: what Prometheus forbids becomes `_`, and names differ.

    A name that our own labels use, or that begins with a digit or `_` (`__` is reserved), gets
    the prefix `tag_`.
    """
    names: dict[str, str] = {}
    for tag in tags:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", tag)
        if name in RESERVED or not name or name[0].isdigit() or name[0] == "_":
            name = f"tag_{name}"
        unique = name
        suffix = 2
        while unique in names.values():
            unique = f"{name}_{suffix}"
            suffix = suffix + 1
        names[tag] = unique
    return names


def windows_json(agent: AgentView) -> dict[str, Any]:
    """Build the estimates, states and quantiles of every window, service and segment."""
    view = base_view(agent)

    def read(service: str) -> dict[str, Any]:
        windows = agent.windows
        return {
            segment: _segment_json(windows, service, segment, view.windows)
            for segment in ("", *windows.segments(service))
        }

    services = dict(zip(view.services, read_each(agent, view.services, read), strict=True))
    return {
        "stream_time": view.now,
        "ready": view.health.ready,
        "problems": list(view.health.problems),
        "windows": list(view.windows),
        "services": services,
        "judge": view.judge
        and {**view.judge._asdict(), "usd_per_answer": view.judge.usd_per_answer},
        "alerts": [finite_values(alert.to_dict()) for alert in view.alerts],
    }


def questions_json(agent: AgentView) -> dict[str, Any]:
    """Build the incidents, and the eight questions of every service with where they differ."""
    view = base_view(agent)
    longest = view.windows[-1]

    def read(service: str) -> dict[str, Any]:
        questions = agent.questions(service)
        return {
            "requests": agent.windows.count_traces(service, "", longest),
            "questions": [asdict(answer) for answer in questions.answers(service)],
            "segments": [asdict(one) for one in questions.segment_answers(service)],
            "changes": [asdict(change) for change in questions.tag_changes(service)],
            "source_changes": [asdict(change) for change in questions.source_changes(service)],
        }

    services = dict(zip(view.services, read_each(agent, view.services, read), strict=True))
    return {
        "stream_time": view.now,
        "ready": view.health.ready,
        "problems": list(view.health.problems),
        "window": longest,
        "services": services,
        "judge": view.judge
        and {**view.judge._asdict(), "usd_per_answer": view.judge.usd_per_answer},
        "incidents": [finite_values(asdict(incident)) for incident in view.incidents],
    }


def _segment_json(
    windows: Windows, service: str, segment: str, names: Sequence[str]
) -> dict[str, Any]:
    metrics = []
    for metric, scorer in windows.series(service, segment):
        if is_overflow_series(scorer):
            continue
        labels = series_labels(metric, windows.current_scorer(metric, scorer))
        for name in names:
            estimate = windows.estimate(service, segment, metric, scorer, name)
            item: dict[str, Any] = {**labels, "window": name}
            if estimate is not None:
                fields = ("value", "lower", "upper", "effective_samples", "samples")
                item |= {field: getattr(estimate, field) for field in fields}
            states = windows.states(service, segment, metric, scorer, name)
            metrics.append(finite_values({**item, "states": dict(states)}))
    latency = [
        {
            "stage": stage,
            "window": name,
            "quantile": item.quantile,
            "value": item.value,
            "lower": item.lower,
            "upper": item.upper,
        }
        for stage in windows.stages(service, segment)
        for name in names
        for item in windows.quantiles(service, segment, stage, name)
    ]
    seen = {name: windows.count_traces(service, segment, name) for name in names}
    return {"seen": seen, "metrics": metrics, "latency": latency}
