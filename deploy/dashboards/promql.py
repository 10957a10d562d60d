"""The queries that the panels share, as text with Grafana's variables in it."""

from __future__ import annotations

from collections.abc import Mapping

from ragmeter.alerts.promql import quote

__all__ = [
    "INTERVAL",
    "PLAIN",
    "RANGE",
    "hold_last_value",
    "of_service",
    "series_selector",
    "target",
    "whole",
]

INTERVAL = "$__rate_interval"
"""Four scrapes at least, and no less than what a pixel shows: Grafana's own for `rate`."""

RANGE = "$__range"
"""All that the dashboard shows."""

_TARGET = ('job=~"$job"', 'instance=~"$instance"')
_SERVICE = 'service=~"$service"'
_MEASURE = ("metric", "scorer", "fingerprint", "k", "window", "stage", "quantile")

# How far back the last value of a gauge counts: two scrapes of a minute.
_HOLD = "2m"


def series_selector(name: str, labels: Mapping[str, str], *matchers: str) -> str:
    """`name{label="value",...}` with further matchers as they are."""
    inner = ",".join([*(f"{label}={quote(value)}" for label, value in labels.items()), *matchers])
    return f"{name}{{{inner}}}" if inner else name


def hold_last_value(series: str) -> str:
    """The last value of a gauge, also where the last scrape has failed."""
    return f"last_over_time({series}[{_HOLD}])"


def target(name: str, *matchers: str) -> str:
    """A series of the chosen agents."""
    return series_selector(name, {}, *_TARGET, *matchers)


def of_service(name: str, *matchers: str) -> str:
    """A series of the chosen agents and services."""
    return target(name, _SERVICE, *matchers)


def whole(series: str) -> str:
    """Whole services, without the series of their segments.

    Which tags are segments is a setting, so no matcher can name them all. But every service has one
    counter without any, and what differs from it by more than the labels of a measure is a segment.
    """
    return f"{series} and {PLAIN}"


PLAIN = f"ignoring ({', '.join(_MEASURE)}) {hold_last_value(target('rag_cost_usd_total'))}"
"""What a series of a whole service has a match in, and one of a segment has not."""
