from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ragmeter.exporters.svg import pool_points, sparkline
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.series import Estimate
from tests.exporters.fakes import estimate

GROUNDING = metric_specs()["grounding"]
Points = list[tuple[float, Estimate | None]]


def drawn(points: Points, metric: str = "grounding") -> ET.Element:
    made = sparkline(points, metric_specs()[metric], "label <x>")
    assert made is not None
    return ET.fromstring(made)


def test_nothing_known_draws_nothing() -> None:
    assert sparkline([], GROUNDING, "x") is None
    assert sparkline([(0.0, None), (60.0, None)], GROUNDING, "x") is None


def test_a_run_is_a_line_in_its_band() -> None:
    svg = drawn([(60.0 * i, estimate(0.5 + i / 100)) for i in range(30)])
    assert svg.attrib["role"] == "img"
    assert svg.findtext("title", "").startswith("label <x>, 00:00 to 00:29 UTC: latest 0.79")
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


def test_busy_points_are_left_alone() -> None:
    points: Points = [(float(i), estimate(samples=40)) for i in range(60)]
    assert pool_points(points, "mean") == points


def test_little_traffic_is_pooled() -> None:
    points: Points = [(float(i), estimate(float(i % 2), 0.4, samples=2)) for i in range(60)]
    groups = pool_points(points, "ratio")
    assert len(groups) == 12
    found = groups[-1][1]
    assert found is not None
    assert (found.samples, found.effective_samples) == (10, 9.0)
    # Wilson for 9 effective samples at a share of 0.6 (newest five: 1 0 1 0 1)
    assert (round(found.value, 3), round(found.lower, 3), round(found.upper, 3)) == (
        0.6, 0.3, 0.84,
    )  # fmt: skip
    assert groups[-1][0] == 59.0


def test_a_pooled_mean_is_known_better_than_its_parts() -> None:
    points: Points = [(float(i), estimate(0.5, 0.2, samples=4)) for i in range(60)]
    found = pool_points(points, "mean")[0][1]
    assert found is not None
    assert round(found.upper - found.lower, 4) == round(0.4 / 5**0.5, 4)


def test_pooling_keeps_what_is_unknown() -> None:
    points: Points = [(float(i), None) for i in range(59)]
    assert pool_points(points, "mean") == points
    groups = pool_points([*points, (59.0, estimate(samples=2))], "mean")
    assert [found is None for _, found in groups] == [True] * 11 + [False]
