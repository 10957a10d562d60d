"""The two ports of the embedded agent: traces in, and metrics with the page."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agent.config import Settings
from agent.pipeline import Instrument
from agent.sources.baselines import BaselinesEndpoint
from agent.sources.http import TracesEndpoint
from agent.sources.inspection import InspectionEndpoint
from agent.sources.otlp import OtlpEndpoint
from exporters.web import metrics_app

__all__ = ["PortInUse", "calm", "quiet", "serving"]

log = logging.getLogger("ragmeter")

QUIET_SECONDS = 60.0  # between two reports that there are no file descriptors left


class PortInUse(Exception):
    """An address that cannot be listened on, and why."""


async def _listen(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Serve `app`; returns its runner and base URL. Raises `PortInUse`."""
    # compressed bodies are unpacked by the handler, which bounds what they may grow to
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=2)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise PortInUse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    bound = runner.addresses[0][1]
    shown = f"[{host}]" if ":" in host else host
    return runner, f"http://{shown}:{bound}"


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
    runners: list[web.AppRunner] = []
    await endpoint.start()
    await otlp.start()
    try:
        urls = []
        for app, port in ((traces, settings.http.otlp_port), (page, settings.http.metrics_port)):
            runner, url = await _listen(app, settings.http.host, port)
            runners.append(runner)
            urls.append(url)
        yield urls[0], urls[1]
    finally:
        for runner in runners:
            await runner.cleanup()
        await endpoint.stop()
        await otlp.stop()


def _worth_a_line(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def quiet() -> None:
    """Keep what is no HTTP out of the log: it is answered with 400, and anybody can send it."""
    logging.getLogger("aiohttp.server").addFilter(_worth_a_line)


def calm(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler of the event loop that reports a lack of file descriptors at most once
    a minute: asyncio would write a traceback for every try to accept a connection.
    """
    last: float | None = None

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif last is None or clock() - last >= QUIET_SECONDS:
            last = clock()
            log.error("no connection can be accepted: %s", error.strerror)

    return handle
