"""`GET /api/segments.json`: the breakdown of services of a running agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from aiohttp import web

from ragmeter.config.settings import Settings
from ragmeter.core.durations import main_window
from ragmeter.core.errors import UsageError
from ragmeter.core.metric_specs import find_spec
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.contract import PageHome
from ragmeter.parts.segments.breakdown import (
    DEFAULT_FDR,
    BreakdownOptions,
    NoPastError,
    build_document,
    service_breakdown,
)
from ragmeter.parts.views import ComparedWith
from ragmeter.server.paths import quote_sent

_PARAMETERS = ("service", "metric", "window", "against", "fdr")
_MAX_ANSWERS = 2  # at a time: each holds a core while it is made, and a scraper must not wait


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


def segments_document(home: PageHome, settings: Settings, query: SegmentsQuery) -> dict[str, Any]:
    """Build the breakdown of each service that has segments, or of the one in the query.

    Raises:
        InvalidSegmentsQuery: The service or window does not exist, or has no past to compare.
    """
    with home.lock():
        windows = home.windows
        names = tuple(windows.names)
        services = windows.services()
        now = windows.now
    window = query.window or main_window(names)
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
            build_document(service_breakdown(home, service, window, options))
            for service in (services if query.service is None else [query.service])
        ]
    except NoPastError as error:
        raise InvalidSegmentsQuery(str(error)) from None
    return {
        "stream_time": now,
        "window": window,
        "windows": list(names),
        "segments": list(settings.segments),
        "services": documents,
    }


def segments_route(home: PageHome, settings: Settings) -> web.RouteDef:
    """Return the route, whose answers are made in threads."""
    answers = asyncio.Semaphore(_MAX_ANSWERS)

    async def answer(request: web.Request) -> web.Response:
        try:
            query = SegmentsQuery.parse(request.query)
            async with answers:
                document = await asyncio.to_thread(segments_document, home, settings, query)
        except InvalidSegmentsQuery as error:
            return web.json_response({"error": str(error)}, status=400)
        response = web.json_response(document, dumps=_dump)
        response.enable_compression()
        return response

    return web.get("/api/segments.json", answer)


# The document holds no NaN and no infinity.
_dump = partial(json.dumps, ensure_ascii=False, allow_nan=False)
