"""The JSON API of the metrics port: `/api/windows.json` and `/api/segments.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

from ragmeter.breakdown.breakdown import (
    DEFAULT_FDR,
    BreakdownOptions,
    ComparedWith,
    NoPastError,
    build_document,
)
from ragmeter.core.errors import RagmeterError
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.series import is_overflow_series, series_labels
from ragmeter.exporters.page.views import base_view, default_segment_window, service_breakdown
from ragmeter.metrics.registry import metric_specs

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.windows.windows import Windows

_MAX_SHOWN_CHARS = 100  # characters of what a caller has sent
_PARAMETERS = ("service", "metric", "window", "against", "fdr")


class InvalidSegmentsQuery(RagmeterError, ValueError):
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
                    f"{_shown(name)}: one of {', '.join(_PARAMETERS)} is needed"
                )
        metric, against = query.get("metric"), query.get("against")
        if metric is not None and find_spec(metric_specs(), metric) is None:
            raise InvalidSegmentsQuery(f"metric {_shown(metric)} is not known")
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
        names, services, now = tuple(windows.names), windows.services(), windows.now
    window = query.window or default_segment_window(names)
    if window not in names:
        raise InvalidSegmentsQuery(f"window {_shown(window)}: one of {', '.join(names)} is needed")
    if query.service is not None and query.service not in services:
        raise InvalidSegmentsQuery(
            f"service {_shown(query.service)}: no trace of it is in any window"
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


def windows_json(agent: AgentView) -> dict[str, Any]:
    """Build the estimates, states and quantiles of every window, service and segment."""
    view = base_view(agent)
    services: dict[str, Any] = {}
    for service in view.services:
        with agent.lock():
            windows = agent.windows
            services[service] = {
                segment: _segment_json(windows, service, segment, view.windows)
                for segment in ("", *windows.segments(service))
            }
    return {
        "stream_time": view.now,
        "ready": view.health.ready,
        "problems": list(view.health.problems),
        "windows": list(view.windows),
        "services": services,
        "alerts": [_finite(alert.to_dict()) for alert in view.alerts],
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
            metrics.append(_finite({**item, "states": dict(states)}))
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


def _finite(item: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinities, which JSON lacks, by null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in item.items()
    }


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN_CHARS])
