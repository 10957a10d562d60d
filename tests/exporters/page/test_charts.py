from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.series import Estimate
from ragmeter_exporters.page.rendering import make_environment

from tests.exporters.fakes import alert, estimate

Points = list[tuple[float, Estimate | None]]


def make(kind: str, points: Points, metric: str = "grounding", *more: object) -> str:
    macro = getattr(make_environment().get_template("plots.html").module, kind)
    return str(macro(points, metric_specs().get(metric), "label <x>", *more))


def drawn(points: Points, metric: str = "grounding") -> ET.Element:
    svg = ET.fromstring(make("spark", points, metric, "/a?b&c")).find("svg")
    assert svg is not None
    return svg


def test_nothing_known_draws_nothing() -> None:
    assert "svg" not in make("spark", [], "grounding", "/")
    assert "svg" not in make("spark", [(0.0, None), (60.0, None)], "grounding", "/")


def test_a_run_is_a_line_in_its_band() -> None:
    svg = drawn([(60.0 * i, estimate(0.5 + i / 100)) for i in range(30)])
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"].startswith("label <x>, latest 00:29 UTC: 0.79")
    assert len(svg.findall("polyline")) == 1
    assert len(svg.findall("path")) == 1


def test_gaps_stay_gaps_and_a_lone_point_is_a_whisker() -> None:
    known = estimate()
    points: Points = [(0.0, known), (1.0, known), (2.0, None), (3.0, known), (4.0, None)]
    svg = drawn(points)
    assert len(svg.findall("polyline")) == 1
    assert len([line for line in svg.findall("line") if line.get("class") == "whisker"]) == 1


def test_everything_lies_inside_the_drawing() -> None:
    wild = [(60.0 * i, estimate(i % 2, 0.6)) for i in range(30)]
    for metric in ("grounding", "relevance", "input_tokens", "error"):
        svg = drawn([*wild], metric)
        numbers = [float(n) for n in re.findall(r"-?\d+\.\d", svg.find("path").get("d", ""))]  # type: ignore[union-attr]
        assert all(0 <= x <= 132 for x in numbers[::2])
        assert all(0 <= y <= 34 for y in numbers[1::2])


def test_a_flat_course_does_not_fill_the_height() -> None:
    svg = drawn([(60.0 * i, estimate(0.5 + (i % 2) / 1000, 0.001)) for i in range(30)])
    line = svg.find("polyline")
    assert line is not None
    heights = [float(pair.split(",")[1]) for pair in line.get("points", "").split()]
    assert max(heights) - min(heights) < 2


def test_one_single_point() -> None:
    assert len(drawn([(5.0, estimate())]).findall("circle")) == 2
    assert drawn([(5.0, estimate(0.0, 0.0))], "input_tokens") is not None


def test_each_point_shows_its_numbers() -> None:
    svg = drawn([(60.0 * i, estimate(0.5 + i / 100)) for i in range(30)])
    words = [column.findtext("title", "") for column in svg.findall("rect")]
    assert len(words) == 30
    assert words[3] == "00:03 UTC: 0.53 (0.48–0.58), 40 traces"
    assert [text.text for text in svg.findall("text")][2:] == ["00:00", "00:29"]


def test_a_chart_has_axes_and_shades_its_alerts() -> None:
    points: Points = [(86_400.0 * i, estimate(0.5)) for i in range(15)]
    alerts = [
        alert(fired_at=86_400.0 * 3, resolved_at=86_400.0 * 4, state="resolved"),
        alert(fired_at=86_400.0 * 13, severity="warning"),
        alert(fired_at=-5.0, resolved_at=-1.0, state="resolved"),
        alert(fired_at=None, since=5.0, state="pending"),
    ]
    svg = ET.fromstring(make("large", points, "grounding", alerts, 86_400.0 * 14))
    shades = [rect for rect in svg.findall("rect") if "shade" in rect.get("class", "")]
    assert [rect.get("class") for rect in shades] == ["shade critical", "shade warning"]
    assert [round(float(rect.get("width", 0))) for rect in shades] == [62, 62]
    assert [round(float(rect.get("x", 0))) for rect in shades] == [276, 895]
    texts = [text.text for text in svg.findall("text")]
    assert texts[:5] == ["0.45", "0.48", "0.50", "0.53", "0.55"]
    assert "1970-01-03" in texts
    assert len([text for text in texts if text and text.startswith("1970")]) <= 8


def test_latency_is_in_seconds() -> None:
    points: Points = [(60.0 * i, estimate(2.0, 0.5)) for i in range(30)]
    assert "2.00\u202fs (1.50–2.50\u202fs)" in make("spark", points, "latency", "/")
