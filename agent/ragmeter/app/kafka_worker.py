"""Run one Kafka worker from start to shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ragmeter_exporters.otel.exporter import ResultsExporter
from ragmeter_exporters.senders import AlertSenders
from ragmeter_exporters.web import metrics_app

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rules import AlertRule
from ragmeter.app.parts import PARTS
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.core.process import SignalHandlers, Watchdog, collect_rarely, is_unready, run_jobs
from ragmeter.core.report_pace import ReportPace
from ragmeter.embedded.commands import SettingsReload
from ragmeter.embedded.endpoints.operator import (
    INSPECT_PATH,
    RESULTS_PATH,
    BaselinesEndpoint,
    LiveEndpoint,
)
from ragmeter.ingest.live_inspection import LiveResults
from ragmeter.kafka.broker_probe import BrokersUnreachable, probe_brokers
from ragmeter.kafka.client_logs import limit_client_logs
from ragmeter.kafka.owners import PASSING
from ragmeter.kafka.processors.delivery import TracePreparer
from ragmeter.kafka.rights import explain_failure
from ragmeter.kafka.topics import find_topic_problem
from ragmeter.kafka.worker_app import WorkerApp
from ragmeter.kafka.worker_view import ProcessReadings, WorkerView
from ragmeter.parts.collection import part_form_paths, part_links, part_routes
from ragmeter.scoring.inline_tiers import InlineTiers
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import limit_accept_errors, listen

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
# Seconds between two attempts to reach a broker.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
TOLD_SECONDS = 600.0  # between two lines about the same problem
_SILENT_SECONDS = 8.0  # they are asked every 2 s, and have 6 s to answer


async def run_worker(
    settings: Settings,
    rules: Sequence[AlertRule],
    *,
    reread: Callable[[], Settings],
    say: Callable[[str], None],
) -> int:
    """Run a worker until it is stopped, and return the exit status.

    `reread` returns the settings as they are written by now, on SIGHUP; `say` prints a line.

    Raises:
        ListenError: The port cannot be opened.
        KafkaSecurityError: A file of `kafka.security` cannot be used.
        ModelError: The local model cannot be loaded.
    """
    access = AccessPolicy(settings, traces=False)
    limit_client_logs()
    asyncio.get_running_loop().set_exception_handler(limit_accept_errors())
    worker = _WorkerProcess(settings)
    senders = AlertSenders(settings.alerts)
    texts = settings.privacy.content == "full"
    exporter = ResultsExporter(settings.results_export, texts=texts)
    results = LiveResults()
    status = 0
    async with contextlib.AsyncExitStack() as stack:
        counters = Counters()
        datadir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmeter-")))
        preparer = await stack.enter_async_context(TracePreparer(settings, counters))
        tiers = await stack.enter_async_context(InlineTiers(settings, counters))
        outputs = AgentOutputs(
            senders.notify,
            senders.announced,
            exporter.put if settings.results_export.endpoint else None,
            results.publish,
        )
        app = WorkerApp(
            settings=settings,
            rules=rules,
            preparer=preparer,
            tiers=tiers,
            counters=counters,
            datadir=datadir,
            outputs=outputs,
            parts=PARTS,
        )
        view = WorkerView(
            settings,
            app.state,
            Aggregator(settings, rules, []).windows,
            counters,
            readings=ProcessReadings(
                problems=worker.problems,
                waiting=lambda: app.score.waiting(settings.kafka.topics.traces),
                judges=tiers.judges.labels,
                gauges=lambda: [*tiers.gauges(), *app.gauges()],
            ),
            parts=PARTS,
        )
        exporter.start(view)
        stack.push_async_callback(exporter.stop)
        worker.signals.reload = SettingsReload(settings, reread, app, access)
        trace_url = settings.alerts.trace_template
        page = metrics_app(
            view,
            refused=access.refused,
            links=part_links(PARTS, settings),
            trace_url=trace_url,
            routes=partial(part_routes, PARTS, settings, view),
        )
        BaselinesEndpoint(view).add_to(page)
        LiveEndpoint(INSPECT_PATH, app.inspection).add_to(page)
        LiveEndpoint(RESULTS_PATH, results).add_to(page)
        http = settings.http
        await stack.enter_async_context(access.watch_files())
        listener = listen(
            page,
            http.host,
            http.metrics_port,
            access,
            form_paths=part_form_paths(PARTS),
        )
        url = await stack.enter_async_context(listener)
        senders.start(view)
        stack.push_async_callback(senders.stop)
        say(f"metrics:     {url}/metrics")
        say(f"status page: {url}/")
        collect_rarely()
        await worker.connect()
        if not worker.stop.is_set():
            worker.app = app
            status = await worker.run(app)
    return status


class _WorkerProcess:
    """The health of a worker, from the first attempt to reach a broker to its end."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self.signals = SignalHandlers()
        self.stop = self.signals.stop
        self.app: WorkerApp | None = None
        self.problem: str | None = "not connected to Kafka yet"
        self.stalled = 0.0

    def problems(self) -> list[str]:
        app = self.app
        problems = [self.problem, app.fatal if app else None]
        if self.problem is None and app is not None and not app.ready:
            problems.append("the group rebalances or the state is loaded")
        if app is not None:
            problems += [*app.score.unreadable.values(), *app.state.unreadable.values()]
            problems += [*app.score.refusals, *app.state.refusals]
        if app is not None and app.silence > _SILENT_SECONDS:
            problems.append(f"the brokers have not answered for {app.silence:.0f} s")
        if is_unready(self.stalled, self._settings.limits.stalled_seconds):
            problems.append(f"nothing has moved for {self.stalled:.0f} s although messages wait")
        return [text for text in problems if text]

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def connect(self) -> None:
        """Return when a broker accepts us and has our topics, or it is time to stop.

        Nothing ends the wait: credentials that are wrong today may be right tomorrow, because the
        brokers may be restarting with them, and topics may be made after the workers are started.
        """
        pause = FIRST_PAUSE
        pace = ReportPace(self._monotonic, TOLD_SECONDS)
        while not self.stop.is_set():
            try:
                topics = await probe_brokers(self._settings.kafka)
                problem = find_topic_problem(self._settings, PARTS, topics)
            except BrokersUnreachable as error:
                problem = str(error)
            self.problem = problem or None
            if not problem:
                return
            if pace.is_due(problem):
                log.warning("%s; waiting, not ready; tries go on", problem)
            await self.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def run(self, app: WorkerApp) -> int:
        """Run the jobs of the app, and return the exit status when it is time to end."""
        async with run_jobs(app.jobs, passing=PASSING, explain=explain_failure):
            status = await self._watch(app)
            if not status:
                await self._drain(app)
            return status

    async def _drain(self, app: WorkerApp) -> None:
        seconds = self._settings.limits.drain_seconds
        try:
            async with asyncio.timeout(seconds):
                await app.drain()
        except TimeoutError:
            log.warning(
                "the worker did not finish in %.0f s; what it had begun is delivered again", seconds
            )

    async def _watch(self, app: WorkerApp) -> int:
        watchdog: Watchdog[object] = Watchdog(time.monotonic)
        limit = self._settings.limits.stalled_seconds
        away = False
        while not self.stop.is_set():
            if app.fatal is not None:
                return 1
            # while the brokers are away nobody gets on, and a restart would not help
            if away != (app.silence > _SILENT_SECONDS):
                away = not away
                log.warning("the brokers %s", "do not answer; waiting" if away else "answer again")
            stalled = watchdog.update({} if away else app.marks())
            self.stalled = max(stalled.values(), default=0.0)
            if self.stalled > limit:
                log.error("stalled; a restart goes on where it stopped: %s", app.describe())
                return 1
            await self.pause(_POLL_SECONDS)
        return 0
