"""`ragmeter run`: the embedded agent from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import httpx
from aiohttp import web

from agent.alerts import Rule
from agent.config import Settings
from agent.intake import Unavailable
from agent.pipeline import Instrument
from agent.progress import ReplayProgress
from agent.sources.files import STDIN
from agent.sources.http import TracesEndpoint
from agent.sources.replay import replay
from exporters.senders import Senders
from exporters.web import metrics_app

__all__ = ["PortInUse", "run"]

log = logging.getLogger("ragmeter")


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
async def _serving(instrument: Instrument, settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Both ports open; yields the base URLs for traces and for the page."""
    limits = settings.limits
    endpoint = TracesEndpoint(instrument, limits.body_bytes, limits.trace_bytes)
    page = metrics_app(instrument)
    traces = web.Application()
    for app in (page, traces):
        endpoint.add_to(app)
    runners: list[web.AppRunner] = []
    await endpoint.start()
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


class _Stop:
    """Set by SIGINT and SIGTERM; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal, number)

    def _signal(self, number: signal.Signals) -> None:
        if self.event.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.event.set()


async def run(
    settings: Settings,
    rules: Sequence[Rule],
    *,
    files: Sequence[Path],
    exit_after_replay: bool,
    say: Callable[[str], None],
    show: Callable[[Instrument], None],
) -> int:
    """Run until stopped; returns the exit status.

    `say` gets lines for the terminal, `show` prints the windows after a replay. Raises
    `StateError`, `PortInUse` and OSError (a replay file that cannot be read).
    """
    senders = Senders(settings.alerts)
    instrument = Instrument(
        settings,
        rules,
        live=not files,
        notify=senders.notify,
    )
    instrument.start()
    stop = _Stop()
    status = 0
    try:
        async with contextlib.AsyncExitStack() as stack:
            urls = None
            if not exit_after_replay:
                urls = await stack.enter_async_context(_serving(instrument, settings))
            client = await stack.enter_async_context(httpx.AsyncClient())
            senders.start(client, instrument)
            stack.push_async_callback(senders.stop)
            for path in files:
                await _replay(instrument, settings, path, stop, say)
            if files and not stop.event.is_set():
                show(instrument)
            if urls and not stop.event.is_set():
                say(f"traces in:   POST {urls[0]}/v1/rag/traces")
                say(f"metrics:     {urls[1]}/metrics")
                say(f"status page: {urls[1]}/")
                say("serving until Ctrl-C")
            while urls and not stop.event.is_set() and not instrument.fatal:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.event.wait(), 0.5)
    finally:
        emptied = await asyncio.to_thread(instrument.stop, settings.limits.drain_seconds)
    if instrument.fatal:
        log.error(instrument.fatal)
        status = 1
    elif not emptied:
        say("stopped with traces in the queue: they are durable and counted at the next start")
    return status


async def _replay(
    instrument: Instrument,
    settings: Settings,
    path: Path,
    stop: _Stop,
    say: Callable[[str], None],
) -> None:
    with ReplayProgress(path) as progress:
        try:
            items = await asyncio.to_thread(
                replay,
                instrument,
                path,
                settings.limits.trace_bytes,
                progress=progress.read,
                stopped=stop.event.is_set,
            )
            await asyncio.to_thread(instrument.wait_idle, stop.event.is_set)
        except Unavailable:
            return  # the agent died and says why itself
    name = "standard input" if path == STDIN else str(path)
    bad = f", {progress.bad} of them unreadable (see {settings.state.dead_letters})"
    if items == 0 and path != STDIN:
        say(
            f"{name}: nothing new; this state file has counted it before"
            f" ({settings.state.path}; --fresh starts anew)"
        )
    else:
        say(f"{name}: {items} items{bad if progress.bad else ''}")
