"""Load users' own metrics from the entry points of installed packages (docs/own-metrics.md)."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from ragmeter.core.errors import RagmeterError
from ragmeter.metrics.custom import CustomMetric
from ragmeter.metrics.registry import install_metric

_ENTRY_POINT_GROUP = "ragmeter.metrics"  # one entry point a metric


class OwnMetricError(RagmeterError):
    """An entry point that is not a metric; the text names it and its package."""


def load_own_metrics() -> None:
    """Install every metric of an entry point; metrics that are installed already stay.

    A package that does not load is an error: its gauges and rules would be missing, and a missing
    gauge looks like a quiet service.

    Raises:
        OwnMetricError: An entry point does not load or is not a metric.
    """
    for point in sorted(entry_points(group=_ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
            if not isinstance(loaded, CustomMetric):
                raise TypeError(f"not a metric, but {type(loaded).__name__}: decorate it")
            install_metric(loaded)
        except SystemExit as error:
            raise OwnMetricError(f"{_describe(point)}: it ends the process") from error
        except Exception as error:  # users' code may raise anything
            raise OwnMetricError(f"{_describe(point)}: {error or type(error).__name__}") from error


def _describe(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"metric {point.name!r} ({point.value}){package}"
