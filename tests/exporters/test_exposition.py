from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from ragmeter_exporters.exposition import (
    MetricFamily,
    family_header,
    format_labels,
    format_number,
    join_exposition,
)

values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(values, st.floats(allow_nan=False))
def test_any_label_value_and_number_comes_back_from_both_parsers(text: str, value: float) -> None:
    family = MetricFamily("rag_x", "gauge", 'Help with "quotes", \\ and\na line.')
    line = f"rag_x{format_labels([('service', text), ('empty', '')])} {format_number(value)}\n"
    for openmetrics, parse in ((False, parse_text), (True, parse_openmetrics)):
        page = join_exposition([family_header(family, openmetrics), line], openmetrics).decode(
            "utf-8"
        )
        (found,) = parse(page)
        assert found.samples[0].labels == {"service": text}
        assert found.samples[0].value == value
        assert found.documentation == family.help


def test_numbers_that_are_none() -> None:
    assert [format_number(v) for v in (math.inf, -math.inf, math.nan)] == ["+Inf", "-Inf", "NaN"]
    assert format_number(3) == "3.0"


def test_a_unit_is_told_only_where_the_name_ends_in_it() -> None:
    notified = MetricFamily("rag_a_seconds", "gauge", "A.", unit="seconds")
    untold = MetricFamily("rag_a_ci_lower", "gauge", "A.", unit="seconds")
    assert "# UNIT rag_a_seconds seconds\n" in family_header(notified, True)
    assert "# UNIT" not in family_header(untold, True)
    assert "# UNIT" not in family_header(notified, False)


@pytest.mark.parametrize(
    ("name", "kind", "text", "openmetrics"),
    [
        ("rag_requests_total", "counter", "rag_requests_total counter", "rag_requests counter"),
        ("ragmeter_build_info", "info", "ragmeter_build_info gauge", "ragmeter_build info"),
    ],
)
def test_the_two_formats_name_families_differently(
    name: str, kind: str, text: str, openmetrics: str
) -> None:
    family = MetricFamily(name, kind, "A.")  # type: ignore[arg-type]
    assert f"# TYPE {text}\n" in family_header(family, False)
    assert f"# TYPE {openmetrics}\n" in family_header(family, True)


def test_lone_surrogates_do_not_break_the_page() -> None:
    assert (
        join_exposition([f"x{format_labels([('a', chr(0xD800))])} 1\n"], False) == b'x{a="?"} 1\n'
    )
