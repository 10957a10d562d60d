"""The pages behind a token, in a real Chromium: it asks for the token, and everything works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.config import load
from agent.listener.access import Access
from agent.ports import listening
from exporters.web import metrics_app
from tests.exporters.browser import browser
from tests.exporters.fakes import FakeReading, as_reading, everything
from tests.exporters.test_real_browser import paths
from tests.real import require

TOKEN = "t" * 20


@contextmanager
def guarded(reading: FakeReading) -> Iterator[str]:
    """The address of the real listener, `127.0.0.1:PORT`, in a thread."""
    loop = asyncio.new_event_loop()
    ready, found, stop = threading.Event(), [], asyncio.Event()
    access = Access(load(environ={}, overrides={"http": {"token": TOKEN}}))

    async def run() -> None:
        app = metrics_app(as_reading(reading), refused=access.refused)
        async with listening(app, "127.0.0.1", 0, access) as url:
            found.append(url.removeprefix("http://"))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert ready.wait(20), "the listener did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


@pytest.mark.real
def test_pages_behind_a_token_work(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    reading = everything()
    with guarded(reading) as place, browser(chromedriver, chromium, tmp_path) as page:
        page.open(f"http://{place}/")
        assert page.run("return document.querySelector('main')") is None, "it asks first"
        page.logs()
        page.open(f"http://me:{TOKEN}@{place}/")  # as a person answers the browser's question
        assert page.run("return document.title") == "ragmeter"
        for path in paths(reading)[:-1]:  # from here on the browser knows the token
            page.open(f"http://{place}{path}")
            assert page.run("return document.querySelector('main') !== null"), path
            assert page.run("return getComputedStyle(document.body).margin") == "0px", "no style"
            assert page.run("return document.scripts.length") == 0
        complaints = [one for one in page.logs() if "favicon" not in one["message"]]
        assert complaints == []
