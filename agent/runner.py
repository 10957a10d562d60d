"""`ragmeter run`: the embedded agent from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from agent.alerts import Rule
from agent.config import Settings
from agent.instruments import slow_tiers
from agent.intake import Unavailable
from agent.labelling.replay import replay_feedback
from agent.listener.access import Access
from agent.pipeline import Instrument
from agent.ports import calm
from agent.progress import ReplayProgress
from agent.reload import Reload
from agent.serving import serving
from agent.signals import Signals
from agent.sources.files import Source
from agent.sources.replay import Replayed, replay
from exporters.otel import ResultsExporter
from exporters.senders import Senders

__all__ = ["run"]

log = logging.getLogger("ragmeter")


# A judge that keeps up is not worth a line.
QUIET_SECONDS = 2.0

LOOK_SECONDS = 0.5


async def run(
    settings: Settings,
    rules: Sequence[Rule],
    *,
    files: Sequence[Path],
    feedback: Sequence[Path] = (),
    exit_after_replay: bool,
    reread: Callable[[], Settings],
    say: Callable[[str], None],
    show: Callable[[Instrument], None],
) -> int:
    """Run until stopped; returns the exit status: 1 when the agent died, or when it ends after a
    replay of which nothing could be read.

    `reread` gives the settings as they are written by now, `say` gets lines for the terminal,
    `show` prints the windows after a replay. Raises `StateError`, `PortInUse` and OSError (a
    replay file that cannot be read), `ConfigError` (a port that anybody could use, a file of a
    token or certificate that cannot be).
    """
    access = None if exit_after_replay else Access(settings)
    senders = Senders(settings.alerts)
    texts = settings.privacy.content == "full"
    exporter = ResultsExporter(settings.results_export, texts=texts)
    instrument = Instrument(
        settings,
        rules,
        live=not files and not exit_after_replay,
        notify=senders.notify,
        announced=senders.announced,
        tiers=lambda saved: slow_tiers(settings, saved),
        results=exporter.put,
    )
    await exporter.start(instrument)
    instrument.start()
    watching = asyncio.create_task(_watch(instrument))
    asyncio.get_running_loop().set_exception_handler(calm())
    stop = Signals(Reload(settings, reread, instrument, access)).stop
    status = 0
    try:
        async with contextlib.AsyncExitStack() as stack:
            urls = None
            if not exit_after_replay:
                urls = await stack.enter_async_context(serving(instrument, settings, access))
            client = await stack.enter_async_context(httpx.AsyncClient())
            senders.start(client, instrument)
            stack.push_async_callback(senders.stop)
            for path in files:
                read = await _replay(instrument, settings, path, stop, say)
                if exit_after_replay and not read:
                    status = 1
            for path in feedback:  # after the traces that it speaks of
                with contextlib.suppress(Unavailable):  # the agent died and says why itself
                    heard = await asyncio.to_thread(
                        replay_feedback, instrument, path, stop.is_set, say
                    )
                    if exit_after_replay and not heard:
                        status = 1
            if (files or feedback) and not stop.is_set():
                show(instrument)
            if urls and not stop.is_set():
                say(f"traces in:   POST {urls[0]}/v1/rag/traces")
                say(f"labels in:   POST {urls[0]}/v1/feedback")
                say(f"metrics:     {urls[1]}/metrics")
                say(f"status page: {urls[1]}/")
                say("serving until Ctrl-C")
            while urls and not stop.is_set() and not instrument.fatal:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
    finally:
        watching.cancel()  # the drain has a limit of its own
        emptied = await asyncio.to_thread(instrument.stop, settings.limits.drain_seconds)
        await exporter.stop()  # last: what was drained has results too
    if instrument.fatal:
        log.error(instrument.fatal)
        status = 1
    elif not emptied:
        say("stopped with traces in the queue: they are durable and counted at the next start")
    return status


async def _watch(instrument: Instrument) -> None:
    """Ends the process where something has stalled: at once, for what hangs may hold what an
    orderly end would wait for. What was accepted is durable, and a restart goes on with it."""
    while True:
        try:
            stalled = instrument.look()
        except Exception:
            log.exception("looking for stalls failed")  # and the next look may not
            stalled = None
        if stalled:
            log.error("%s; a restart goes on where it stopped", stalled)
            faulthandler.dump_traceback(all_threads=True)  # for whoever reads the log after it
            logging.shutdown()
            os._exit(1)
        await asyncio.sleep(LOOK_SECONDS)


async def _replay(
    instrument: Instrument,
    settings: Settings,
    path: Path,
    stop: asyncio.Event,
    say: Callable[[str], None],
) -> bool:
    """Whether anything could be read, or there was nothing to read."""
    source = Source(path)
    with ReplayProgress(Path(source.name).name, source.size) as progress:
        try:
            done = await asyncio.to_thread(
                replay,
                instrument,
                path,
                settings.limits.trace_bytes,
                progress=progress.read,
                stopped=stop.is_set,
                warn=say,
            )
            await _worked_off(instrument, source.name, stop, say)
        except Unavailable:
            return True  # the agent died and says why itself
    if stop.is_set():
        say(f"{source.name}: stopped after {done.items} items")
    else:
        say(f"{source.name}: {_outcome(done, settings)}")
    return done.bad == 0 or done.bad < done.items


async def _worked_off(
    instrument: Instrument, name: str, stop: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Wait for what is queued and drawn; say what is waited for where that takes time."""
    idle = asyncio.create_task(asyncio.to_thread(instrument.wait_replayed, stop.is_set))
    done, _ = await asyncio.wait([idle], timeout=QUIET_SECONDS)
    before = _drawn(instrument)
    if before and not done:
        say(f"{name}: read; {before}")
    await idle
    left = _drawn(instrument)
    if left and stop.is_set():
        say(f"{name}: {left}; they are durable and scored after the next start")
    elif left:  # live traffic: there is always some
        say(f"{name}: counted; {left}, those of live traffic among them")
    elif before and not done:
        say(f"{name}: none waits any more")


def _drawn(instrument: Instrument) -> str:
    """How many traces wait for the slow tiers, in words; empty where none does."""
    drawn = instrument.health().drawn
    return " and ".join(
        f"{number:,} {'trace waits' if number == 1 else 'traces wait'} for the {tier}"
        for tier, number in drawn.items()
        if number
    )


def _outcome(done: Replayed, settings: Settings) -> str:
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
        parts.append(f"{done.bad} of them unreadable (see {settings.state.dead_letters})")
    if done.unfinished:
        parts.append("unfinished last line, left for the next run")
    return ", ".join(parts)
