"""The pages in a real Chromium: nothing of a trace runs, and nothing overflows a phone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from ragmeter_exporters.report_page import render_report_page

from tests.exporters.alerts import absent, drifted, make, slow, unscored
from tests.exporters.broken_down import fallen
from tests.exporters.browser import Browser, browser
from tests.exporters.fakes import FakeAgent, estimate, everything, trace
from tests.exporters.hostile_report import usual
from tests.exporters.incidents import opened, over, refused
from tests.exporters.page.test_pages import HOSTILE, hostile
from tests.exporters.server import serving
from tests.real import require

WIDTHS = "return [document.documentElement.scrollWidth, window.innerWidth]"


def paths(agent: FakeAgent) -> list[str]:
    service = quote(agent.fake.services()[0], safe="")
    return [
        "/",
        f"/service/{service}",
        f"/service/{service}/details",
        *(f"/trace/{service}/{quote(trace_id, safe='')}" for _, trace_id in agent.documents),
        *(f"/incident/{quote(one.service, safe='')}/{one.id}" for one in agent.incident_list),
        "/nothing",
    ]


def visit(page: Browser, url: str) -> None:
    page.open(url)
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.mark.real
@pytest.mark.parametrize("kind", ["usual", "hostile", "fallen"])
def test_pages_run_nothing_and_fit_a_phone(kind: str, tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    agent = {"usual": everything, "hostile": hostile, "fallen": fallen}[kind]()
    signals = (make(), slow(), absent(), unscored(), drifted())
    agent.incident_list += [opened(signals=signals), refused(), over(id="1" * 16)]
    with (
        serving(agent) as port,
        browser(chromedriver, chromium, tmp_path) as page,
    ):
        page.size(400, 900)
        for path in paths(agent):
            visit(page, f"http://127.0.0.1:{port}{path}")
            width, window = page.run(WIDTHS)
            assert (width, window) == (400, 400), path
            assert page.run("return document.scripts.length + document.images.length") == 0
            assert page.run("return getComputedStyle(document.body).margin") == "0px", "no style"
            # A script that ran would have opened an alert, which WebDriver reports as an error;
            # one that was stopped by the policy would be in the log.
            complaints = [
                line
                for line in page.logs()
                if "favicon" not in line["message"] and "404 (Not Found)" not in line["message"]
            ]
            assert complaints == []
        text = page.run("return document.title")
        assert "404" in text


@pytest.mark.real
def test_hostile_text_is_shown_as_it_is(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    agent = hostile()
    with serving(agent) as port, browser(chromedriver, chromium, tmp_path) as page:
        visit(page, f"http://127.0.0.1:{port}{paths(agent)[3]}")
        text = page.run("return document.body.innerText")
    assert HOSTILE.split("\u202e")[0] in text
    assert "⟦U+202E⟧evil⟦U+2066⟧" in text


@pytest.mark.real
def test_links_lead_to_services_and_traces_of_any_name(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    agent = FakeAgent()
    names = [
        ".",
        "..",
        "..~",
        "...",
        "%2e%2e",
        "a/b",
        "../x",
        "a\\b",
        "a?b#c",
        "{s}",
        "größe 漢",
        "//",
    ]
    for name in names:
        agent.fake.table[(name, "", "grounding", "builtin", "1h")] = estimate()
        agent.documents[(name, name)] = {"trace": trace(query=f"of {name}"), "results": []}
        agent.incident_list.append(opened(service=name, worst=(name,)))
    with serving(agent) as port, browser(chromedriver, chromium, tmp_path) as page:
        page.open(f"http://127.0.0.1:{port}/")
        links = page.run(
            'return [...document.querySelectorAll(\'a[href^="/service/"], a[href^="/trace/"]\')]'
            ".map(a => [(a.ariaLabel || a.innerText).replace('worst request ', ''), a.href])"
        )
        assert {name for name, _ in links} >= set(names)
        for name, href in links:
            page.open(href)
            title = page.run("return document.title")
            assert name in title, (href, title)
            assert "404" not in title


@pytest.mark.real
def test_dark_and_light_differ(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    with serving(everything()) as port, browser(chromedriver, chromium, tmp_path) as page:
        colours = []
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            page.open(f"http://127.0.0.1:{port}/")
            colours.append(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(250, 250, 248)", "rgb(18, 21, 25)"]


@pytest.mark.real
def test_a_printed_report_lists_its_worst_traces(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    (report := tmp_path / "report.html").write_text(render_report_page(usual()))
    listed = "return document.querySelector('.worst .case').checkVisibility()"
    with browser(chromedriver, chromium, tmp_path) as page:
        page.open(report.as_uri())
        assert not page.run(listed)  # behind a click
        page.cdp("Emulation.setEmulatedMedia", media="print")
        assert page.run(listed)
        assert page.run(
            "return getComputedStyle(document.querySelector('section')).breakInside"
        ) == (
            "auto"  # a long section begins on the page that has room
        )
