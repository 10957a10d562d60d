"""`/api/windows.json`: the numbers of the page for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from agent.fingerprints import is_mixture, series_labels
from exporters.page.views import base_view

if TYPE_CHECKING:
    from agent.reading import Reading
    from agent.windows import Windows

__all__ = ["windows_json"]


def windows_json(reading: Reading) -> dict[str, Any]:
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
        if is_mixture(scorer):
            continue
        labels = series_labels(metric, windows.named(metric, scorer))
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
    seen = {name: windows.seen(service, segment, name) for name in names}
    return {"seen": seen, "metrics": metrics, "latency": latency}


def _finite(item: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in item.items()
    }
