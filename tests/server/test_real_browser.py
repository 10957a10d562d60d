"""The pages behind a token, in a real Chromium: it asks for the token, and everything works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporters.browser import browser
from tests.exporters.fakes import everything
from tests.exporters.test_real_browser import paths
from tests.real import require
from tests.server.guarded import guarded

TOKEN = "t" * 20


@pytest.mark.real
def test_pages_behind_a_token_work(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    reading = everything()
    with guarded(reading, token=TOKEN) as place, browser(chromedriver, chromium, tmp_path) as page:
        page.open(f"http://{place}/")
        assert page.run("return document.querySelector('main')") is None, "it asks first"
        page.logs()
        page.open(f"http://me:{TOKEN}@{place}/")  # as a person answers the browser's question
        assert page.run("return document.title") == "bot · ragmeter", "the only service"
        for path in paths(reading)[:-1]:  # from here on the browser knows the token
            page.open(f"http://{place}{path}")
            assert page.run("return document.querySelector('main') !== null"), path
            assert page.run("return getComputedStyle(document.body).margin") == "0px", "no style"
            assert page.run("return document.scripts.length") == 0
        complaints = [one for one in page.logs() if "favicon" not in one["message"]]
        assert complaints == []
