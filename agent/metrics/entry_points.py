"""Users' own metrics: found by the entry points of installed packages, once for a process."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from agent.metrics import install
from agent.metrics.own import OwnMetric

__all__ = ["GROUP", "OwnMetricError", "load_own_metrics"]

GROUP = "ragmeter.metrics"
"""The group of entry points, one for each metric."""


class OwnMetricError(Exception):
    """An entry point that is no metric: which, of which package, and why."""


def load_own_metrics() -> None:
    """Into the registry. Raises `OwnMetricError`.

    A package that does not load is a mistake and not left out: its gauges and its rules would be
    missing, and an absent gauge looks like a quiet service.
    """
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
            if not isinstance(loaded, OwnMetric):
                raise TypeError(f"not a metric, but {type(loaded).__name__}: decorate it")
            install(loaded)
        except SystemExit as error:
            raise OwnMetricError(f"{_where(point)}: it ends the process") from error
        except Exception as error:  # whatever their code raises
            raise OwnMetricError(f"{_where(point)}: {error or type(error).__name__}") from error


def _where(point: EntryPoint) -> str:
    of = f" of {point.dist.name}" if point.dist is not None else ""
    return f"metric {point.name!r} ({point.value}){of}"
