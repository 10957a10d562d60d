"""The two ports of the embedded agent: traces in, and metrics with the page."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from agent.config import Settings
from agent.pipeline import Instrument
from agent.ports import listening, quiet
from agent.sources.baselines import BaselinesEndpoint
from agent.sources.http import TracesEndpoint
from agent.sources.inspection import InspectionEndpoint
from agent.sources.otlp import OtlpEndpoint
from exporters.web import metrics_app

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(instrument: Instrument, settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Both ports open; yields the base URLs for traces and for the page."""
    quiet()
    limits = settings.limits
    endpoint = TracesEndpoint(instrument, limits.body_bytes, limits.trace_bytes)
    page = metrics_app(instrument)
    traces = web.Application()
    for app in (page, traces):
        endpoint.add_to(app)
    otlp = OtlpEndpoint(instrument.assembly, limits.body_bytes, redactor=instrument.redactor)
    otlp.add_to(traces)
    BaselinesEndpoint(instrument).add_to(page)
    InspectionEndpoint(instrument.watchers).add_to(page)
    await endpoint.start()
    await otlp.start()
    host = settings.http.host
    try:
        async with contextlib.AsyncExitStack() as stack:  # what takes traces closes first
            shown = await stack.enter_async_context(
                listening(page, host, settings.http.metrics_port)
            )
            taken = await stack.enter_async_context(
                listening(traces, host, settings.http.otlp_port)
            )
            yield taken, shown
    finally:
        await endpoint.stop()
        await otlp.stop()
