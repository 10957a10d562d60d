"""The two ports of the embedded agent: traces in, and metrics with the page."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from agent.config import Settings
from agent.listener.access import Access
from agent.pipeline import Instrument
from agent.ports import listening, quiet
from agent.sources.baselines import BaselinesEndpoint
from agent.sources.feedback import FeedbackEndpoint
from agent.sources.http import TracesEndpoint
from agent.sources.index import IndexEndpoint
from agent.sources.inspection import InspectionEndpoint
from agent.sources.otlp import OtlpEndpoint
from exporters.web import metrics_app

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(
    instrument: Instrument, settings: Settings, access: Access | None = None
) -> AsyncIterator[tuple[str, str]]:
    """Both ports open; yields the base URLs for traces and for the page. `access` is made of the
    settings where nobody else needs to know it. Raises `ConfigError` and `PortInUse`."""
    access = access or Access(settings)
    quiet()
    limits = settings.limits
    endpoint = TracesEndpoint(instrument, limits.body_bytes, limits.trace_bytes)
    page = metrics_app(instrument, refused=access.refused)
    traces = web.Application()
    indexing = IndexEndpoint(instrument, limits.body_bytes)
    labels = FeedbackEndpoint(instrument, limits.body_bytes)
    for app in (page, traces):
        endpoint.add_to(app)
        indexing.add_to(app)
        if settings.feedback.traces:
            labels.add_to(app)
    otlp = OtlpEndpoint(instrument.assembly, limits.body_bytes, redactor=instrument.redactor)
    otlp.add_to(traces)
    BaselinesEndpoint(instrument).add_to(page)
    InspectionEndpoint(instrument.watchers).add_to(page)
    await endpoint.start()
    await otlp.start()
    await indexing.start()
    await labels.start()
    http = settings.http
    try:
        async with contextlib.AsyncExitStack() as stack:  # what takes traces closes first
            await stack.enter_async_context(access.watched())
            shown = await stack.enter_async_context(
                listening(
                    page, http.host, http.metrics_port, access, connections=limits.connections
                )
            )
            taken = await stack.enter_async_context(
                listening(
                    traces,
                    http.otlp_address,
                    http.otlp_port,
                    access,
                    name="otlp",
                    connections=limits.connections,
                )
            )
            yield taken, shown
    finally:
        await endpoint.stop()
        await otlp.stop()
        await indexing.stop()
        await labels.stop()
