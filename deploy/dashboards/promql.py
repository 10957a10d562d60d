"""The queries that the panels share, as text with Grafana's variables in it."""

from __future__ import annotations

from collections.abc import Mapping

from ragmeter.alerts.promql import quote

__all__ = [
    "INTERVAL",
    "of_service",
    "series_selector",
    "target",
]

INTERVAL = "$__rate_interval"
"""Four scrapes at least, and no less than what a pixel shows: Grafana's own for `rate`."""

_TARGET = ('job=~"$job"', 'instance=~"$instance"')
_SERVICE = 'service="$service"'


def series_selector(name: str, labels: Mapping[str, str], *matchers: str) -> str:
    """`name{label="value",...}` with further matchers as they are."""
    inner = ",".join([*(f"{label}={quote(value)}" for label, value in labels.items()), *matchers])
    return f"{name}{{{inner}}}" if inner else name


def target(name: str, *matchers: str) -> str:
    """A series of the chosen agents."""
    return series_selector(name, {}, *_TARGET, *matchers)


def of_service(name: str, *matchers: str) -> str:
    """A series of the chosen agents and service."""
    return target(name, _SERVICE, *matchers)
