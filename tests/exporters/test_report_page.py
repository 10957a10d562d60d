"""The page of a report: the numbers in words too, and nothing of a file runs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest
from ragmeter.offline.report.run import ScoredRun
from ragmeter.offline.report.summary import build_report
from ragmeter_exporters.report_page import (
    BoxPlotLane,
    axis_domain,
    describe_lane,
    draw_box_plots,
    render_report_page,
)

from tests.exporters.browser import browser
from tests.exporters.hostile_report import ESCAPE, hostile, usual
from tests.offline.report.runs import run_of, series_of
from tests.real import require


def test_a_lane_in_words() -> None:
    # of 0, .1, .. .9: quartiles .2 and .7, median .45; the interval is the estimator's business
    lane = BoxPlotLane("a", series_of(run_of([0.1 * n for n in range(10)])))
    words = describe_lane(lane)
    assert words.startswith("a: n = 10, mean 0.450, 95 % interval 0.")
    assert "median 0.450, quartiles 0.200 and 0.700, whiskers 0.000 and 0.900, 0 outside" in words
    answered = BoxPlotLane("a", series_of(run_of([1.0, 0.0], "answered"), "answered"))
    assert "median" not in describe_lane(answered)
    assert describe_lane(BoxPlotLane("a", series_of(run_of([None])))) == "a: nothing scored"


def test_where_things_are_drawn() -> None:
    lane = BoxPlotLane("a", series_of(run_of([0.0, 0.25, 0.25, 0.5, 0.5, 0.5, 0.75, 0.75, 1.0])))
    svg = ET.fromstring(draw_box_plots("grounding", [lane]))
    found = {e.get("class"): e.attrib for e in svg.iter() if e.tag in ("rect", "line", "path")}
    # the axis goes from 150 to 542: a quarter is 98
    assert float(found["box"]["x"]) == 150 + 98
    assert float(found["box"]["width"]) == 2 * 98
    assert float(found["median"]["x1"]) == float(found["median"]["x2"]) == 150 + 2 * 98
    assert found["mean"]["d"].startswith("M346.0,")
    assert svg.get("role") == "img"
    assert "median 0.500" in str(svg.get("aria-label"))


def test_the_axis_is_what_the_metric_can_be() -> None:
    assert axis_domain([BoxPlotLane("a", series_of(run_of([0.4, 0.5])))]) == (0.0, 1.0)
    tokens = BoxPlotLane("a", series_of(run_of([100.0, 300.0], "input_tokens"), "input_tokens"))
    low, high = axis_domain([tokens])
    assert (low, high >= 300) == (0.0, True)
    assert axis_domain([BoxPlotLane("a", series_of(run_of([0.0], "cost_usd"), "cost_usd"))])[1] > 0


def test_everything_is_there_once() -> None:
    text = render_report_page(usual())
    for words in (
        "Difference from gpt-4",
        "adjusted: one test",
        "10 scored, 1 unscored",
        "judge_timeout 1",
        "n = 10",
        "n = 14",
        "Worst traces",
    ):
        assert words in text, words
    assert render_report_page(usual()) == text
    assert "<script" not in text
    assert re.findall(r"(?:src|href)=", text) == []
    assert "default-src 'none'" in unescape(text)


def test_texts_are_escaped_and_bounded() -> None:
    text = render_report_page(hostile())
    assert "<img" not in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a" * 1_000 not in text
    assert "b" * 300 not in text
    assert text.count("<li><bdi>") == 3 * 3 * 3  # runs, traces, spans that have a place
    assert text.count("</style>") == 1


def test_a_run_of_nothing_still_has_a_page() -> None:
    run = run_of([None, None])
    assert isinstance(run, ScoredRun)
    assert "no run has a value of: grounding" in render_report_page(
        build_report([run], paired_by="trace_id")
    )


@pytest.mark.real
def test_a_real_browser_runs_nothing_of_it_and_a_phone_can_show_it(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    file = tmp_path / "report.html"
    with browser(chromedriver, chromium, tmp_path / "profile") as shown:
        shown.size(400, 900)
        for report in (usual(), hostile()):
            file.write_text(render_report_page(report), encoding="utf-8", errors="replace")
            shown.open(file.as_uri())
            shown.run("document.querySelectorAll('details').forEach(d => d.open = true)")
            sizes = "return [document.documentElement.scrollWidth, window.innerWidth]"
            assert shown.run(sizes) == [400, 400]
            assert shown.run("return document.scripts.length + document.images.length") == 0
            colour = "return getComputedStyle(document.querySelector('.boxes .box')).stroke"
            assert shown.run(colour) != "none", "the style is not in force"
            assert shown.logs() == []
        assert ESCAPE.partition("\u202e")[0] in shown.run("return document.body.innerText")
