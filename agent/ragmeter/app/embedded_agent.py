"""Run the embedded agent from start to shutdown, with its HTTP ports."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

from ragmeter_exporters.otel.exporter import ResultsExporter
from ragmeter_exporters.senders import AlertSenders

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rules import AlertRule
from ragmeter.app.parts import PARTS
from ragmeter.config.settings import Settings
from ragmeter.core.errors import StateUnavailable
from ragmeter.core.process import SignalHandlers, collect_rarely
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.commands import SettingsReload
from ragmeter.embedded.file_import import ImportResult, import_documents, import_traces
from ragmeter.ingest.files import InputFile
from ragmeter.parts.collection import (
    document_kinds,
    file_documents,
    part_form_paths,
    part_links,
    part_routes,
)
from ragmeter.scoring.slow_tiers import build_slow_tiers
from ragmeter.server.access import AccessPolicy

log = logging.getLogger(__name__)

# Shorter waits are not reported: the judge keeps up.
_WAIT_REPORT_SECONDS = 2.0

_POLL_SECONDS = 0.5

# Until the first line of a replay's progress, which has a first number, and at most between two:
# each wait is twice the one before.
_FIRST_PROGRESS_SECONDS = 1.0
_PROGRESS_SECONDS = 10.0

# Seconds for which a thread keeps the interpreter's lock while others wait. A request changes
# threads a dozen times, each with such a wait behind a busy worker: with 1 ms instead of 0.2 the
# median request took twice as long on a busy machine. A replay alone is best with 1 ms.
_SERVING_SWITCH_SECONDS = 0.0002
_REPLAY_SWITCH_SECONDS = 0.001


@contextlib.asynccontextmanager
async def serve_agent(
    agent: EmbeddedAgent, settings: Settings, access: AccessPolicy | None = None
) -> AsyncIterator[tuple[str, str]]:
    """Serve both HTTP ports while the context is open.

    Args:
        agent: The agent that takes the traces.
        settings: The settings in force.
        access: Access policy of both ports; None builds one from the settings.

    Yields:
        The base URLs for traces and for the status page.

    Raises:
        ConfigError: The access settings cannot be used.
        PortInUse: Another process listens on a port.
    """
    # late: an import of files opens no port, and these take a third of its start
    from aiohttp import web
    from ragmeter_exporters.web import metrics_app

    from ragmeter.embedded.endpoints.json_items import (
        DocumentsEndpoint,
        TracesEndpoint,
    )
    from ragmeter.embedded.endpoints.operator import (
        INSPECT_PATH,
        RESULTS_PATH,
        BaselinesEndpoint,
        LiveEndpoint,
    )
    from ragmeter.embedded.endpoints.otlp import OtlpEndpoint
    from ragmeter.embedded.endpoints.request_bodies import BodyReader
    from ragmeter.server.listener import limit_accept_errors, listen

    access = access or AccessPolicy(settings)
    asyncio.get_running_loop().set_exception_handler(limit_accept_errors())
    limits = settings.limits
    bodies = BodyReader(limits.body_bytes)
    endpoint = TracesEndpoint(agent, bodies, limits.trace_bytes)
    page = metrics_app(
        agent,
        refused=access.refused,
        links=part_links(agent.part_kinds, settings),
        routes=partial(part_routes, agent.part_kinds, settings, agent),
        trace_url=settings.alerts.trace_template,
    )
    traces = web.Application()
    kinds = document_kinds(agent.part_kinds, settings)
    documents = [DocumentsEndpoint(agent, bodies, part, kind) for part, kind in kinds.items()]
    document_paths = [kind.path for kind in kinds.values()]
    for app in (page, traces):
        endpoint.add_to(app)
        for one in documents:
            one.add_to(app)
    otlp = OtlpEndpoint(agent.assembly, bodies, agent.redactor)
    otlp.add_to(traces)
    BaselinesEndpoint(agent).add_to(page)
    LiveEndpoint(INSPECT_PATH, agent.inspection).add_to(page)
    LiveEndpoint(RESULTS_PATH, agent.results).add_to(page)
    await endpoint.start()
    await otlp.start()
    for one in documents:
        await one.start()
    http = settings.http
    try:
        async with contextlib.AsyncExitStack() as stack:  # the port for traces closes first
            await stack.enter_async_context(access.watch_files())
            shown = await stack.enter_async_context(
                listen(
                    page,
                    http.host,
                    http.metrics_port,
                    access,
                    send_paths=document_paths,
                    form_paths=part_form_paths(agent.part_kinds),
                )
            )
            taken = await stack.enter_async_context(
                listen(
                    traces,
                    http.otlp_address,
                    http.otlp_port,
                    access,
                    name="otlp",
                    send_paths=document_paths,
                )
            )
            yield taken, shown
    finally:
        await endpoint.stop()
        await otlp.stop()
        for one in documents:
            await one.stop()


async def run_agent(
    settings: Settings,
    rules: Sequence[AlertRule],
    *,
    files: Sequence[Path],
    feedback: Sequence[Path] = (),
    exit_after_replay: bool,
    reread: Callable[[], Settings],
    say: Callable[[str], None],
    show: Callable[[EmbeddedAgent, str | None], None],
    describe: Callable[[EmbeddedAgent], str],
) -> int:
    """Run the embedded agent until it is stopped.

    Args:
        settings: The settings in force.
        rules: The alert rules.
        files: Files of traces to import before serving.
        feedback: Files of feedback to import after the traces.
        exit_after_replay: End after the imports and open no port.
        reread: Loads the settings again for a reload.
        say: Receives each message for the terminal.
        show: Prints the windows after the imports; it gets the URL of the page, if it is served.
        describe: Returns how far the imports are.

    Returns:
        The exit status: 1 if the agent died, or if `exit_after_replay` and a file had no
        readable item.

    Raises:
        StateError: The saved state cannot be used.
        PortInUse: Another process listens on a port.
        ConfigError: A port is open to anybody, or a token or certificate file cannot be used.
        OSError: A file to import cannot be read.
    """
    sys.setswitchinterval(_REPLAY_SWITCH_SECONDS if exit_after_replay else _SERVING_SWITCH_SECONDS)
    access = None if exit_after_replay else AccessPolicy(settings)
    senders = AlertSenders(settings.alerts)
    texts = settings.privacy.content == "full"
    exporter = ResultsExporter(settings.results_export, texts=texts)
    live = not files and not exit_after_replay
    agent = EmbeddedAgent(
        settings,
        rules,
        live=live,
        tiers=lambda saved: build_slow_tiers(settings, saved, live=live),
        outputs=AgentOutputs(
            senders.notify,
            senders.announced,
            exporter.put if settings.results_export.endpoint else None,
        ),
        parts=PARTS,
    )
    kinds = document_kinds(PARTS, settings)
    file_kind = file_documents(PARTS, settings) or ""
    exporter.start(agent)
    agent.start()
    watching = asyncio.create_task(_watch_for_stalls(agent))
    stop = SignalHandlers(SettingsReload(settings, reread, agent, access)).stop
    status = 0
    try:
        async with contextlib.AsyncExitStack() as stack:
            urls = None
            if not exit_after_replay:
                urls = await stack.enter_async_context(serve_agent(agent, settings, access))
            senders.start(agent)
            stack.push_async_callback(senders.stop)
            collect_rarely()
            progress = asyncio.create_task(_report_progress(agent, say, describe))
            stack.callback(progress.cancel)
            for path in files:
                read = await _import_files(
                    agent=agent, settings=settings, path=path, stop=stop, say=say
                )
                if exit_after_replay and not read:
                    status = 1
            for path in feedback:  # after the traces to which it refers
                with contextlib.suppress(StateUnavailable):  # the agent died and says why itself
                    imported = await asyncio.to_thread(
                        import_documents,
                        agent,
                        path,
                        file_kind,
                        kinds[file_kind],
                        stopped=stop.is_set,
                        say=say,
                    )
                    if exit_after_replay and not imported:
                        status = 1
            progress.cancel()
            if (files or feedback) and not stop.is_set():
                show(agent, urls[1] if urls else None)
            if urls and not stop.is_set():
                say(f"OTLP in:     POST {urls[0]}/v1/traces")
                say(f"traces in:   POST {urls[0]}/v1/rag/traces")
                for name, kind in kinds.items():
                    say(f"{f'{name} in:':<12} POST {urls[0]}{kind.path}")
                say(f"metrics:     {urls[1]}/metrics")
                say(f"status page: {urls[1]}/")
                say("serving until Ctrl-C")
            while urls and not stop.is_set() and not agent.fatal:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await stop.wait()
    finally:
        watching.cancel()  # the drain has a limit of its own
        emptied = await asyncio.to_thread(agent.stop, settings.limits.drain_seconds)
        await exporter.stop()  # last: draining produces results too
    if agent.fatal:
        log.error(agent.fatal)
        status = 1
    elif not emptied:
        say("stopped with traces in the queue: they are durable and counted at the next start")
    return status


async def _watch_for_stalls(agent: EmbeddedAgent) -> None:
    """End the process at once when a thread has stalled.

    An orderly shutdown could wait forever for what the stalled thread holds. Accepted traces are
    durable, and a restart continues with them.
    """
    while True:
        try:
            stalled = agent.check_stalled()
        except Exception:
            log.exception("looking for stalls failed")  # the next check may succeed
            stalled = None
        if stalled:
            log.error("%s; a restart goes on where it stopped", stalled)
            faulthandler.dump_traceback(all_threads=True)  # shows in the log where it stalled
            logging.shutdown()
            os._exit(1)
        await asyncio.sleep(_POLL_SECONDS)


async def _report_progress(
    agent: EmbeddedAgent, say: Callable[[str], None], describe: Callable[[EmbeddedAgent], str]
) -> None:
    def text() -> str:
        with agent.lock():
            reached = describe(agent)
        return "; ".join(part for part in (reached, _pending_text(agent)) if part)

    wait = _FIRST_PROGRESS_SECONDS
    while True:
        await asyncio.sleep(wait)
        if line := await asyncio.to_thread(text):
            say(line)
            wait = min(2 * wait, _PROGRESS_SECONDS)


async def _import_files(
    agent: EmbeddedAgent,
    settings: Settings,
    path: Path,
    stop: asyncio.Event,
    say: Callable[[str], None],
) -> bool:
    """Return False if the file has items and none could be read."""
    # late: without a file there is no progress to show
    from ragmeter.console.terminal import FileProgress

    source = InputFile(path)
    with FileProgress(Path(source.name).name, source.size) as progress:
        try:
            done = await asyncio.to_thread(
                import_traces,
                agent,
                path,
                settings.limits.trace_bytes,
                progress=progress.read,
                stopped=stop.is_set,
                warn=say,
            )
            await _wait_until_idle(agent, source.name, stop, say)
        except StateUnavailable:
            return True  # the agent died and says why itself
    if stop.is_set():
        say(f"{source.name}: stopped after {done.items} items")
    else:
        say(f"{source.name}: {_import_summary(done, settings)}")
    if done.unfinished and not done.items and not done.before:
        return False  # the file is one line without an end
    return done.bad == 0 or done.bad < done.items


async def _wait_until_idle(
    agent: EmbeddedAgent, name: str, stop: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Wait for queued and drawn traces; report what is pending if that takes time."""
    idle = asyncio.create_task(asyncio.to_thread(agent.wait_replayed, stop.is_set))
    done, _ = await asyncio.wait([idle], timeout=_WAIT_REPORT_SECONDS)
    before = _pending_text(agent)
    if before and not done:
        say(f"{name}: read; {before}")
    await idle
    left = _pending_text(agent)
    if left and stop.is_set():
        say(f"{name}: {left}; they are durable and scored after the next start")
    elif left:  # live traffic: there is always some
        say(f"{name}: counted; {left}, those of live traffic among them")
    elif before and not done:
        say(f"{name}: all scored")


def _pending_text(agent: EmbeddedAgent) -> str:
    """Return how many traces wait for the slow tiers, in words; empty if none does."""
    pending = agent.health().pending
    waiting = ", ".join(f"{number:,} ({tier})" for tier, number in pending.items() if number)
    return f"scoring: {waiting} left" if waiting else ""


def _import_summary(done: ImportResult, settings: Settings) -> str:
    parts = []
    if done.items:
        parts.append(f"{done.items} items")
    elif done.empty:
        parts.append("the file is empty")
    elif done.before:
        parts.append(
            f"nothing new; this state file has counted it before ({settings.state.path};"
            " --fresh starts anew)"
        )
    elif not done.unfinished:
        parts.append("no traces in it")
    if done.bad:
        why = f"{done.first_failure}; see {settings.state.dead_letters}"
        parts.append(f"{done.bad} of them unreadable ({why})")
    if done.unfinished:
        parts.append("unfinished last line, left for the next run")
    return ", ".join(parts)
