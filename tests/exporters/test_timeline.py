"""The picture: valid, inert, escaped, and in place."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.config.loader import load_settings
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.backtest import MAX_POINTS, EstimatePoint, EstimateTracks
from ragmeter.offline.backtest_report import Timeline, TimelineLane, build_timeline
from ragmeter.windows.windows import Windows
from ragmeter_exporters.timeline import GUTTER, MAX_LANES, MAX_SPANS, PLOT, render_timeline

from tests.exporters.alerts import make
from tests.exporters.browser import browser
from tests.offline.test_backtest import outage, rules, run
from tests.real import require
from tests.scored import line_of

EVIL = "\x00<script>alert(1)</script>\"'&\u202e\ud800\ufffe]]>--><![CDATA["
SVG = "{http://www.w3.org/2000/svg}"


def span(pending: float, fired: float | None, resolved: float | None, summary: str = "") -> Alert:
    return make(since=pending, fired_at=fired, resolved_at=resolved, summary=summary)


def lane(
    *alerts: Alert, points: list[EstimatePoint] | None = None, name: str = "Errors"
) -> TimelineLane:
    return TimelineLane(
        name, "critical", "error 5m", alerts, points or [], 0.5, metric_specs()["error"]
    )


def shapes(svg: str, kind: str) -> list[dict[str, str]]:
    return [dict(e.attrib) for e in ET.fromstring(svg).iter() if e.attrib.get("class") == kind]


def test_spans_stand_where_their_times_are() -> None:
    shown = lane(span(0, 250, 500, "why"))
    svg = render_timeline(Timeline("title", 0, 1000, [("bot", [shown])]))
    (firing,) = shapes(svg, "firing")
    assert float(firing["x"]) == GUTTER + PLOT / 4
    assert float(firing["width"]) == PLOT / 4
    (pending,) = shapes(svg, "pending")
    assert (float(pending["x"]), float(pending["width"])) == (GUTTER, PLOT / 4)
    assert (
        "<title>pending  1970-01-01 00:00:00; fired    1970-01-01 00:04:10;"
        " resolved 1970-01-01 00:08:20; why</title>" in svg
    )
    assert "fired once" in svg


def test_what_has_not_ended_reaches_the_end_and_what_waits_has_no_bar() -> None:
    spans = [span(100, 500, None), span(900, None, None)]
    svg = render_timeline(Timeline("title", 0, 1000, [("bot", [lane(*spans)])]))
    (firing,) = shapes(svg, "firing")
    assert float(firing["x"]) + float(firing["width"]) == GUTTER + PLOT
    assert len(shapes(svg, "pending")) == 2


def test_estimates_have_gaps_and_lone_points() -> None:
    gap = (30.0, math.nan, math.nan, math.nan)
    points: list[EstimatePoint] = [
        (0, 0.1, 0.0, 0.2), (10, 0.2, 0.1, 0.3), gap, (40, 0.3, 0.2, 0.4), gap,
        (60, 0.4, math.nan, math.nan), (70, 0.4, math.nan, math.nan),
    ]  # fmt: skip
    svg = render_timeline(Timeline("title", 0, 100, [("bot", [lane(points=points)])]))
    assert len(shapes(svg, "line")) == 2
    assert len(shapes(svg, "band")) == 2
    assert len(shapes(svg, "dot")) == 1
    assert "nan" not in svg
    low, high = (float(line["y1"]) for line in [*shapes(svg, "limit"), *shapes(svg, "whisker")])
    assert low != high


@pytest.mark.parametrize("start", [0.0, 1_760_000_000.0])
@pytest.mark.parametrize("length", [0.0, 1.0, 59.0, 3600.0, 86400.0, 7e6, 5e9])
def test_any_stretch_of_time_has_few_ticks(start: float, length: float) -> None:
    svg = render_timeline(Timeline("title", start, start + length, [("bot", [])]))
    assert len(shapes(svg, "tick")) <= 20
    assert "no alert" in svg


def test_names_from_outside_are_text() -> None:
    alerts = [span(0, 1, None, EVIL)]
    evil = TimelineLane(EVIL, EVIL, EVIL, alerts, [], 0.5, None)
    svg = render_timeline(Timeline(EVIL, 0, 10, [(EVIL * 50, [evil])], [EVIL]))
    root = ET.fromstring(svg)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {
        "svg", "title", "style", "rect", "text", "line", "g", "circle", "path", "polyline",
    }  # fmt: skip
    assert not any(
        name.startswith("on") or "href" in name for e in root.iter() for name in e.attrib
    )
    assert "url(" not in svg
    assert "@import" not in svg
    assert all(ord(char) >= 32 or char == "\n" for char in svg)


def test_the_picture_is_bounded() -> None:
    lanes = [lane(*[span(0, 1, 2)] * 1000, name="full")]
    lanes += [lane(span(0, 1, 2), name=f"A{n}") for n in range(1, 2 * MAX_LANES)]
    svg = render_timeline(Timeline("title", 0, 10, [("bot", lanes)]))
    assert f"{MAX_LANES} more alerts are not drawn" in svg
    assert len(shapes(svg, "firing")) <= MAX_SPANS + MAX_LANES - 1
    assert "no trace in any window" in render_timeline(Timeline("title", 0, 0, []))


def test_a_real_backtest_draws_its_alert_and_its_estimate() -> None:
    tracks = EstimateTracks(rules(), 15)
    backtest = run(outage(), tracks)
    svg = render_timeline(build_timeline(backtest, rules(), tracks))
    assert "1 alert would have fired" in svg
    assert len(shapes(svg, "firing")) == 1
    (line,) = shapes(svg, "line")
    assert len(line["points"].split()) > 60  # twenty minutes by 15 s, but for the first
    assert "value &gt; 0.5" in svg


def test_samples_thin_out_and_stay_bounded() -> None:
    tracks = EstimateTracks(rules(), 15)
    windows = Windows(load_settings(environ={}).windows)
    for n in range(5_000):
        at = 20.0 * n
        for due in tracks.due_times(at):
            windows.advance(due)
            tracks.sample(windows, due)
        tracks.skip_to(at)
        windows.add(line_of(n, timestamp=at).trace, "bot")
    points = tracks.points(("Errors", "bot", ""))
    assert MAX_POINTS * 0.9 <= len(points) <= 2 * MAX_POINTS
    steps = {round(later[0] - first[0]) for first, later in pairwise(points)}
    assert len(steps) == 1
    tracks.skip_to(1e12)  # a jump asks for nothing in between
    assert list(tracks.due_times(1e12)) == []


@pytest.mark.real
def test_a_browser_shows_the_picture_and_runs_nothing(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    tracks = EstimateTracks(rules(), 15)
    backtest = run([{**line, "service": EVIL[1:30]} for line in outage()], tracks)
    path = tmp_path / "p.svg"
    path.write_text(render_timeline(build_timeline(backtest, rules(), tracks)), encoding="utf-8")
    with browser(chromedriver, chromium, tmp_path / "profile") as page:
        colours = []
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            page.open(path.as_uri())
            assert page.run("return document.documentElement.nodeName") == "svg"
            assert page.run("return document.scripts ? document.scripts.length : 0") == 0
            boxes = page.run(
                "return [...document.querySelectorAll('text')].map(t => {"
                "const b = t.getBBox(); return [b.x, b.x + b.width, b.y + b.height]})"
            )
            right, bottom = page.run(
                "const b = document.documentElement.viewBox.baseVal; return [b.width, b.height]"
            )
            assert all(x >= 0 and end <= right and low <= bottom for x, end, low in boxes), boxes
            width = page.run("return document.querySelector('.firing').getBBox().width")
            assert 100 < width < PLOT
            colours.append(
                page.run("return getComputedStyle(document.querySelector('.paper')).fill")
            )
            assert page.logs() == []
    assert colours == ["rgb(255, 255, 255)", "rgb(24, 28, 33)"]
