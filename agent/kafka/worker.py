"""`ragmeter worker`: one member of the group, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from faust.types import TP

from agent.aggregate import Aggregator
from agent.alerts import Rule
from agent.config import Sampling, Settings
from agent.kafka.app import WorkerApp, make_app
from agent.kafka.background.jobs import beside
from agent.kafka.background.promoting import OwnedBaselines
from agent.kafka.background.reading import OwnedReading
from agent.kafka.background.watchdog import marks_of, picture, progress_of
from agent.kafka.client.client_logs import calm_clients
from agent.kafka.reach import Unreachable, reach
from agent.kafka.stages.preparing import Preparing
from agent.kafka.stages.slow import InLine
from agent.kafka.topics import amiss, read
from agent.listener.access import Access
from agent.ports import calm, listening, quiet
from agent.reload import Reload
from agent.settings.privacy import Privacy
from agent.signals import Signals
from agent.sources.baselines import BaselinesEndpoint
from agent.stalls import Stalls, unready
from exporters.senders import Senders
from exporters.web import metrics_app

__all__ = ["run_worker"]

log = logging.getLogger("ragmeter.kafka")

LOOK_SECONDS = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # between two tries to reach a broker
END_SECONDS = 10.0  # for a worker that has failed to leave the group; then it just ends


class _Live:
    """What a SIGHUP changes: see `agent.reload`."""

    def __init__(self, app: WorkerApp, tiers: InLine, preparing: Preparing) -> None:
        self._app = app
        self._tiers = tiers
        self._preparing = preparing

    def resample(self, settings: Sampling) -> None:
        self._tiers.resample(settings)
        self._app.resample(settings)

    def redact(self, settings: Privacy) -> None:
        self._preparing.redactor.update(settings)


class _Worker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.signals = Signals()
        self.stop = self.signals.stop
        self.app: WorkerApp | None = None
        self.problem: str | None = "not connected to Kafka yet"
        self.stalled = 0.0

    def problems(self) -> list[str]:
        app = self.app
        found = [self.problem, app.fatal if app else None]
        if self.problem is None and app is not None and not app.ready:
            found.append("the group forms anew or the state is loaded")
        if unready(self.stalled, self._settings.limits.stalled_seconds):
            found.append(f"nothing has moved for {self.stalled:.0f} s although messages wait")
        return [text for text in found if text]

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    async def connect(self) -> None:
        """Returns when a broker lets us in and has our topics, or it is time to stop. Credentials
        that are wrong today may be right tomorrow, too: the brokers may be restarting with them.
        Topics that are not there may be made after the workers are started."""
        pause = FIRST_PAUSE
        while not self.stop.is_set():
            try:
                topics = await reach(self._settings.kafka)
                problem = amiss(self._settings, topics)
            except Unreachable as error:
                problem = str(error)
            self.problem = problem or None
            if not problem:
                return
            log.warning("%s; next try in %.0f s", problem, pause)
            await self.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def watch(self, app: WorkerApp) -> int:
        """The exit status, when it is time to end."""
        topics = read(self._settings)
        stalls: Stalls[TP] = Stalls(time.monotonic)
        limit = self._settings.limits.stalled_seconds
        while not self.stop.is_set():
            if app.fatal is None and app.should_stop:
                app.fatal = f"Faust has stopped: {app.crash_reason!r}"
                log.error("%s", app.fatal)
            if app.fatal is not None:
                return 1
            found = stalls.look(marks_of(app, topics), progress_of(app))
            self.stalled = max(found.values(), default=0.0)
            if self.stalled > limit:
                log.error("stalled; a restart goes on where it stopped: %s", picture(app))
                return 1
            await self.pause(LOOK_SECONDS)
        return 0


async def run_worker(
    settings: Settings,
    rules: Sequence[Rule],
    *,
    reread: Callable[[], Settings],
    say: Callable[[str], None],
) -> int:
    """Run until stopped; the exit status. `reread` gives the settings as they are written by now.
    Raises `agent.ports.PortInUse`, `agent.kafka.security.SecurityError` and what the local model
    raises."""
    access = Access(settings, traces=False)
    calm_clients()
    asyncio.get_running_loop().set_exception_handler(calm())
    worker = _Worker(settings)
    senders = Senders(settings.alerts)
    empty = Aggregator(settings, rules, []).windows
    tiers: list[InLine] = []
    reading = OwnedReading(
        settings.segments,
        empty,
        problems=worker.problems,
        labels=lambda: tiers[0].instruments.labels() if tiers else (),
        gauges=lambda: tiers[0].gauges() if tiers else (),
    )
    baselines = OwnedBaselines()
    status = 0
    async with contextlib.AsyncExitStack() as stack:
        datadir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmeter-")))
        preparing = await stack.enter_async_context(Preparing(settings, reading.process))
        tiers.append(await stack.enter_async_context(InLine(settings, reading.process)))
        app = make_app(
            settings,
            rules,
            preparing,
            tiers[0],
            reading.process,
            datadir,
            notify=senders.notify,
            announced=senders.announced,
        )
        reading.stage, reading.assemble = app.aggregate, app.assemble
        baselines.stage = app.aggregate
        worker.signals.reload = Reload(settings, reread, _Live(app, tiers[0], preparing), access)
        quiet()
        page = metrics_app(reading, refused=access.refused)
        BaselinesEndpoint(baselines).add_to(page)
        http = settings.http
        await stack.enter_async_context(access.watched())
        url = await stack.enter_async_context(
            listening(
                page,
                http.host,
                http.metrics_port,
                access,
                connections=settings.limits.connections,
            )
        )
        client = await stack.enter_async_context(httpx.AsyncClient())
        senders.start(client, reading)
        stack.push_async_callback(senders.stop)
        say(f"metrics:     {url}/metrics")
        say(f"status page: {url}/")
        await worker.connect()
        if not worker.stop.is_set():
            worker.app = app
            status = 1
            try:
                await app.start()
                async with beside(app.jobs):
                    status = await worker.watch(app)
            finally:
                await _end(app, status, settings.limits.drain_seconds)
    return status


async def _end(app: WorkerApp, status: int, drain: float) -> None:
    """What is under way is finished and committed; what is left is delivered again."""
    if status:
        app.release()  # else Faust would wait for acks that never come
    seconds = END_SECONDS if status else drain
    stopping = asyncio.create_task(app.stop())
    done, _ = await asyncio.wait([stopping], timeout=seconds)
    app.release()
    if done and stopping.exception() is None:
        return
    log.warning("the worker did not stop in %.0f s; what it had begun is delivered again", seconds)
    # Faust's waiting cannot be cancelled; a supervisor must not wait for its patience
    logging.shutdown()
    os._exit(status)
