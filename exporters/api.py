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
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.series import is_overflow_series, series_labels
from ragmeter.exporters.page.views import base_view, default_segment_window, service_breakdown
from ragmeter.metrics.registry import METRICS

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.windows.windows import Windows

_MAX_SHOWN_CHARS = 100  # characters of what a caller has sent


class InvalidSegmentsQuery(ValueError):
    """What cannot be answered, and why."""


@dataclass(frozen=True, slots=True)
class SegmentsQuery:
    """What is asked: None is all services, all metrics, the usual window."""

    service: str | None = None
    metric: str | None = None
    window: str | None = None
    against: ComparedWith | None = None
    fdr: float = DEFAULT_FDR

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Of the parameters of a URL. Raises `BadQuery`."""
        known = ("service", "metric", "window", "against", "fdr")
        for name in query:
            if name not in known:
                raise InvalidSegmentsQuery(
                    f"{name[:_MAX_SHOWN_CHARS]!r}: one of {', '.join(known)} is needed"
                )
        metric, against = query.get("metric"), query.get("against")
        if metric is not None and find_spec(METRICS, metric) is None:
            raise InvalidSegmentsQuery(f"metric {metric[:_MAX_SHOWN_CHARS]!r} is not known")
        if against is not None and against not in tuple(ComparedWith):
            raise InvalidSegmentsQuery(f"against: one of {', '.join(ComparedWith)} is needed")
        try:
            fdr = float(query.get("fdr", DEFAULT_FDR))
        except ValueError:
            fdr = 0.0
        if not 0 < fdr < 1:
            raise InvalidSegmentsQuery("fdr: a number between 0 and 1 is needed")
        return cls(
            query.get("service"),
            metric,
            query.get("window"),
            ComparedWith(against) if against else None,
            fdr,
        )


def segments_json(reading: AgentView, query: SegmentsQuery) -> dict[str, Any]:
    """The breakdown of each service that has segments, or of the one that is asked for. Raises
    `BadQuery`."""
    with reading.lock():
        windows = reading.windows
        names, services, now = tuple(windows.names), windows.services(), windows.now
    window = query.window or default_segment_window(names)
    if window not in names:
        raise InvalidSegmentsQuery(
            f"window {window[:_MAX_SHOWN_CHARS]!r}: one of {', '.join(names)} is needed"
        )
    if query.service is not None and query.service not in services:
        raise InvalidSegmentsQuery(
            f"service {query.service[:_MAX_SHOWN_CHARS]!r}: no trace of it is in any window"
        )
    options = BreakdownOptions(query.metric, query.against, query.fdr)
    found = []
    for service in services if query.service is None else [query.service]:
        try:
            found.append(build_document(service_breakdown(reading, service, window, options)))
        except NoPastError as error:
            raise InvalidSegmentsQuery(str(error)) from None
    return {
        "stream_time": now,
        "window": window,
        "windows": list(names),
        "segments": list(reading.segments),
        "services": found,
    }


def windows_json(reading: AgentView) -> dict[str, Any]:
    """Every window of every service and segment, as `/api/windows.json` gives it."""
    view = base_view(reading)
    services: dict[str, Any] = {}
    for service in view.services:
        with reading.lock():
            windows = reading.windows
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
            found = windows.estimate(service, segment, metric, scorer, name)
            item: dict[str, Any] = {**labels, "window": name}
            if found is not None:
                item |= {
                    "value": found.value,
                    "lower": found.lower,
                    "upper": found.upper,
                    "effective_samples": found.effective_samples,
                    "samples": found.samples,
                }
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
    """JSON has no NaN and no infinity: null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in item.items()
    }
