"""Copy what a scrape or the JSON API needs from the running agent while its lock is held.

The lock is taken once for the counters, and then for some services at a time (`read_each`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ragmeter.aggregate.agent_view import AgentHealth, AgentView
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import CounterKey, Exemplar, GaugeSample
from ragmeter.core.errors import UsageError
from ragmeter.core.json_values import finite_values
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.series import is_overflow_series, series_labels
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.segments.breakdown import (
    DEFAULT_FDR,
    BreakdownOptions,
    ComparedWith,
    NoPastError,
    build_document,
)
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows

from ragmeter_exporters.page.views import (
    base_view,
    default_segment_window,
    read_each,
    service_breakdown,
)

_MAX_SENT_CHARS = 100  # characters of what a caller has sent
_PARAMETERS = ("service", "metric", "window", "against", "fdr")
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
        snapshot = Snapshot(
            now=windows.now,
            health=health,
            services=windows.services(),
            counters=list(agent.counters.items()),
            exemplars=dict(agent.counters.exemplars),
            alerts=[copy(alert) for alert in agent.alerts()],
            segments=tuple(agent.segments),
            waiting=dict(agent.waiting),
            instruments=[tuple(labels.items()) for labels in agent.instruments()],
            gauges=list(agent.gauges()),
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
            if segment or is_assisted(series):
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
        "alerts": [finite_values(alert.to_dict()) for alert in view.alerts],
    }


def questions_json(agent: AgentView) -> dict[str, Any]:
    """Build the eight questions of every service, with where they differ and what changed."""
    view = base_view(agent)
    longest = view.windows[-1]

    def read(service: str) -> dict[str, Any]:
        questions = agent.questions(service)
        return {
            "requests": agent.windows.count_traces(service, "", longest),
            "questions": [asdict(answer) for answer in questions.answers(service)],
            "segments": [asdict(one) for one in questions.segment_answers(service)],
            "changes": [asdict(change) for change in questions.tag_changes(service)],
        }

    services = dict(zip(view.services, read_each(agent, view.services, read), strict=True))
    return {
        "stream_time": view.now,
        "ready": view.health.ready,
        "problems": list(view.health.problems),
        "window": longest,
        "services": services,
        "alerts": [finite_values(alert.to_dict()) for alert in view.alerts],
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


class InvalidSegmentsQuery(UsageError, ValueError):
    """A query that cannot be answered; the text says why."""


@dataclass(frozen=True, slots=True)
class SegmentsQuery:
    """A query for a breakdown; None means all services, all metrics and the default window."""

    service: str | None = None
    metric: str | None = None
    window: str | None = None
    against: ComparedWith | None = None
    fdr: float = DEFAULT_FDR

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Parse the parameters of a URL.

        Raises:
            InvalidSegmentsQuery: A parameter is unknown or has an invalid value.
        """
        for name in query:
            if name not in _PARAMETERS:
                raise InvalidSegmentsQuery(
                    f"{quote_sent(name)}: one of {', '.join(_PARAMETERS)} is needed"
                )
        metric = query.get("metric")
        against = query.get("against")
        if metric is not None and find_spec(metric_specs(), metric) is None:
            raise InvalidSegmentsQuery(f"metric {quote_sent(metric)} is not known")
        if against is not None and against not in tuple(ComparedWith):
            raise InvalidSegmentsQuery(f"against: one of {', '.join(ComparedWith)} is needed")
        try:
            fdr = float(query.get("fdr", DEFAULT_FDR))
        except ValueError:
            fdr = 0.0
        if not 0 < fdr < 1:
            raise InvalidSegmentsQuery("fdr: a number between 0 and 1 is needed")
        compared_with = ComparedWith(against) if against else None
        return cls(query.get("service"), metric, query.get("window"), compared_with, fdr)


def segments_json(agent: AgentView, query: SegmentsQuery) -> dict[str, Any]:
    """Build the breakdown of each service that has segments, or of the one in the query.

    Raises:
        InvalidSegmentsQuery: The service or window does not exist, or has no past to compare.
    """
    with agent.lock():
        windows = agent.windows
        names = tuple(windows.names)
        services = windows.services()
        now = windows.now
    window = query.window or default_segment_window(names)
    if window not in names:
        raise InvalidSegmentsQuery(
            f"window {quote_sent(window)}: one of {', '.join(names)} is needed"
        )
    if query.service is not None and query.service not in services:
        raise InvalidSegmentsQuery(
            f"service {quote_sent(query.service)}: no trace of it is in any window"
        )
    options = BreakdownOptions(query.metric, query.against, query.fdr)
    try:
        documents = [
            build_document(service_breakdown(agent, service, window, options))
            for service in (services if query.service is None else [query.service])
        ]
    except NoPastError as error:
        raise InvalidSegmentsQuery(str(error)) from None
    return {
        "stream_time": now,
        "window": window,
        "windows": list(names),
        "segments": list(agent.segments),
        "services": documents,
    }


def quote_sent(text: str) -> str:
    """Quote the start of what a caller has sent."""
    return repr(text[:_MAX_SENT_CHARS])
