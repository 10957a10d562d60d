"""`python -m tests.deploy.screenshots`: the images of docs/images, from a running agent.

It sends traffic for some minutes: the first third is sound, then answers are given to other
questions, then requests become slow.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.deploy.dashboard_queries import boards, choose
from tests.deploy.dashboard_world import World, sample, watched
from tests.deploy.screenshots.frames import drawn
from tests.deploy.tools import ROOT, uplot
from tests.exporters.browser import Browser, browser
from tests.real import require

__all__ = ["main"]

HERE = Path(__file__).parent
IMAGES = ROOT / "docs" / "images"
WIDTH = 1400
RATE = 4  # traces a second


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=8)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmeter-screenshots-"))
        )
        found = stack.enter_context(watched(folder, interval=5))
        began = time.time()
        _drive(found, options.minutes * 60)
        ended = time.time()
        chrome = browser(require("chromedriver"), require("chromium"), folder / "profile")
        page = stack.enter_context(chrome)
        for name, board in boards().items():
            take_screenshot(found, page, name, board, (began, ended), folder)
            sys.stdout.write(f"{name}\n")


def _drive(world: World, seconds: float) -> None:
    traces = _turning(seconds)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        world.send([next(traces) for _ in range(2 * RATE)])
        time.sleep(min(2, max(0, left)))


def _turning(seconds: float) -> Iterator[dict[str, Any]]:
    """Sound traces; then answers to other questions; then slow ones."""
    began = time.monotonic()
    last = ""
    for trace in sample():
        share = (time.monotonic() - began) / seconds
        answer = str(trace.get("answer") or "")
        if share > 0.4 and trace["service"] == "mtrag-chat":
            trace["answer"] = last or answer
        if share > 0.7:
            trace["timings"] = {key: value * 6 for key, value in trace["timings"].items()}
        last = answer
        yield trace


def take_screenshot(
    world: World,
    page: Browser,
    name: str,
    board: dict[str, Any],
    times: tuple[float, float],
    folder: Path,
) -> None:
    span = times[1] - times[0]
    values, options = choose(world.ask, board, span, interval=5)
    panels = drawn(world.ask, board, values, options, (*times, max(2, span // 240)))
    shown = {
        "title": board["title"],
        "from": times[0],
        "to": times[1],
        "panels": panels,
        "variables": [
            (variable.get("label") or variable["name"], _choice(variable, values))
            for variable in board["templating"]["list"]
            if variable["type"] != "textbox"
        ],
    }
    path = folder / f"{name}.html"
    path.write_text(_page(shown), encoding="utf-8")
    page.size(WIDTH, 900)
    page.open(path.as_uri())
    assert page.run("return document.body.dataset.done") == "yes", page.logs()
    page.size(WIDTH, int(page.run("return document.documentElement.scrollHeight")))
    page.screenshot(IMAGES / f"dashboard-{name}.png")


def _choice(variable: dict[str, Any], values: dict[str, str]) -> str:
    if variable["type"] == "datasource":
        return "Prometheus"
    return "All" if variable.get("includeAll") else values.get(variable["name"], "")


def _page(shown: dict[str, Any]) -> str:
    """One file, so that nothing is fetched. A label value must not end the script."""
    data = json.dumps(shown).replace("</", "<\\/")
    scripts = uplot()
    text = (HERE / "page.html").read_text(encoding="utf-8")
    for mark, own in (
        ("/* uplot.css */", (scripts / "uPlot.min.css").read_text(encoding="utf-8")),
        ("/* uplot.js */", (scripts / "uPlot.iife.min.js").read_text(encoding="utf-8")),
        ("/* draw.js */", (HERE / "draw.js").read_text(encoding="utf-8")),
        ("/* board.json */ null", data),
    ):
        text = text.replace(mark, own, 1)
    return text


if __name__ == "__main__":
    main()
