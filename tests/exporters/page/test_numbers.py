from __future__ import annotations

import math

from ragmeter.metrics.registry import metric_specs
from ragmeter_exporters.page import numbers

from tests.tables import each_row


def plain(text: str) -> str:
    return text.replace(numbers.THIN, " ")


@each_row(
    ("metric", "number", "shown"),
    [
        ("answered", 0.9131, "91.3 %"),
        ("error", 0.0004, "0.04 %"),
        ("error", 1e-17, "0.0 %"),
        ("grounding", 0.8449, "0.84"),
        ("relevance", 2.136, "2.14"),
        ("input_tokens", 1811.4, "1,811"),
        ("output_tokens", 96.25, "96.2"),
        ("cost_usd", 0.0031, "$0.0031"),
        ("cost_usd", 1234.5, "$1,234.50"),
    ],
)
def test_values_carry_their_unit(metric: str, number: float, shown: str) -> None:
    assert plain(numbers.format_value(number, metric_specs()[metric])) == shown


def test_an_interval_names_the_unit_once() -> None:
    assert plain(numbers.format_interval(0.88, 0.939, metric_specs()["answered"])) == "88.0–93.9 %"
    assert (
        plain(numbers.format_interval(0.0023, 0.0027, metric_specs()["cost_usd"]))
        == "$0.0023–0.0027"
    )


def test_one_trace_of_a_ratio_is_yes_or_no() -> None:
    assert numbers.format_trace_value(0.0, metric_specs()["answered"]) == "no"
    assert numbers.format_trace_value(1.0, metric_specs()["error"]) == "yes"
    assert numbers.format_trace_value(1.0, metric_specs()["grounding"]) == "1.00"


@each_row(
    ("number", "shown"),
    [
        (0.0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.045, "45 ms"),
        (0.9996, "1.00 s"),
        (2.414, "2.41 s"),
        (12.34, "12.3 s"),
        (99.97, "1 min 40 s"),
        (7260, "2 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations(number: float, shown: str) -> None:
    assert plain(numbers.format_seconds(number)) == shown


def test_intervals_of_durations() -> None:
    assert plain(numbers.format_seconds_interval(1.55, 2.41)) == "1.55–2.41 s"
    assert plain(numbers.format_seconds_interval(0.9, 1.2)) == "900 ms–1.20 s"
    assert plain(numbers.format_seconds_interval(3.5, None)) == "≥ 3.50 s"
    assert plain(numbers.format_seconds_interval(None, 3.5)) == "≤ 3.50 s"
    assert numbers.format_seconds_interval(None, None) == ""


def test_counts_and_moments() -> None:
    assert numbers.format_count(1234567) == "1,234,567"
    assert numbers.format_count(69.54) == "69.5"
    assert numbers.format_time(1_790_000_000) == "2026-09-21 14:13:20 UTC"
    for impossible in (None, math.nan, math.inf, 1e18):
        assert numbers.format_time(impossible) == "—"
    assert numbers.format_clock(math.inf) == "—"
