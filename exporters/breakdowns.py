"""Which segment moves a mean, asked of the running agent: `/api/segments.json` and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from agent.breakdown import (
    FDR,
    Against,
    Breakdown,
    NoPast,
    OfWindow,
    Options,
    breakdown_of,
)
from agent.breakdown.document import document
from agent.metrics import METRICS
from agent.metrics.names import spec_of

if TYPE_CHECKING:
    from agent.reading import Reading
    from agent.windows import Windows

__all__ = ["BadQuery", "Query", "breakdown_in", "segments_json", "usual_window"]

SHOWN = 100  # characters of what a caller has sent


class BadQuery(ValueError):
    """What cannot be answered, and why."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: None is all services, all metrics, the usual window."""

    service: str | None = None
    metric: str | None = None
    window: str | None = None
    against: Against | None = None
    fdr: float = FDR

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Of the parameters of a URL. Raises `BadQuery`."""
        known = ("service", "metric", "window", "against", "fdr")
        for name in query:
            if name not in known:
                raise BadQuery(f"{name[:SHOWN]!r}: one of {', '.join(known)} is needed")
        metric, against = query.get("metric"), query.get("against")
        if metric is not None and spec_of(METRICS, metric) is None:
            raise BadQuery(f"metric {metric[:SHOWN]!r} is not known")
        if against is not None and against not in tuple(Against):
            raise BadQuery(f"against: one of {', '.join(Against)} is needed")
        try:
            fdr = float(query.get("fdr", FDR))
        except ValueError:
            fdr = 0.0
        if not 0 < fdr < 1:
            raise BadQuery("fdr: a number between 0 and 1 is needed")
        return cls(
            query.get("service"),
            metric,
            query.get("window"),
            Against(against) if against else None,
            fdr,
        )


def usual_window(names: tuple[str, ...]) -> str:
    """1h, or the middle one: what the page shows of segments."""
    return "1h" if "1h" in names else names[len(names) // 2]


def breakdown_in(
    reading: Reading, service: str, window: str, options: Options | None = None
) -> Breakdown:
    """Of one service. The lock is taken once for each series. Raises `NoPast`."""

    def windows() -> Windows:
        return reading.windows

    return breakdown_of(OfWindow(windows, service, window, reading.lock), options)


def segments_json(reading: Reading, query: Query) -> dict[str, Any]:
    """The breakdown of each service that has segments, or of the one that is asked for. Raises
    `BadQuery`."""
    with reading.lock():
        windows = reading.windows
        names, services, now = tuple(windows.names), windows.services(), windows.now
    window = query.window or usual_window(names)
    if window not in names:
        raise BadQuery(f"window {window[:SHOWN]!r}: one of {', '.join(names)} is needed")
    if query.service is not None and query.service not in services:
        raise BadQuery(f"service {query.service[:SHOWN]!r}: no trace of it is in any window")
    options = Options(query.metric, query.against, query.fdr)
    found = []
    for service in services if query.service is None else [query.service]:
        try:
            found.append(document(breakdown_in(reading, service, window, options)))
        except NoPast as error:
            raise BadQuery(str(error)) from None
    return {
        "stream_time": now,
        "window": window,
        "windows": list(names),
        "segments": list(reading.segments),
        "services": found,
    }
