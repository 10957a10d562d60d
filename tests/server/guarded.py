"""The metrics port behind the real listener, in a thread, for programs that browse or scrape it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragmeter.app.settings import load_settings
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import listen
from ragmeter_exporters.web import metrics_app

from tests.exporters.fakes import FakeAgent, as_agent_view
from tests.server.ports import Loop
from tests.waiting import PATIENCE

__all__ = ["guarded"]


@contextmanager
def guarded(reading: FakeAgent, new_loop: Loop = None, **http: Any) -> Iterator[str]:
    """`127.0.0.1:PORT`; `http` are its settings."""
    loop = (new_loop or asyncio.new_event_loop)()
    ready = threading.Event()
    found = []
    stop = asyncio.Event()
    access = AccessPolicy(load_settings(environ={}, overrides={"http": http}))

    async def run() -> None:
        app = metrics_app(as_agent_view(reading), refused=access.refused)
        async with listen(app, "127.0.0.1", 0, access) as url:
            found.append(url.rpartition("/")[2])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE), "the listener did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()
