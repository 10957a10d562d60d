"""Spans and log events come back from the state file as they were."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.ingest.stored_spans import dump_log_event, dump_span, load_log_event, load_span

from tests.tables import each_row

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
MAPS = st.dictionaries(TEXT, VALUES, max_size=4)
TIMES = st.integers(0, 2**64 - 1)
EVENTS = st.builds(SpanEvent, TEXT, TIMES, MAPS)
SPANS = st.builds(
    Span,
    trace_id=TEXT,
    span_id=TEXT,
    parent_id=TEXT,
    name=TEXT,
    kind=st.integers(0, 5),
    start=TIMES,
    end=TIMES,
    status=st.integers(0, 2),
    status_message=TEXT,
    attributes=MAPS,
    events=st.lists(EVENTS, max_size=2),
    trace_state=TEXT,
    scope=TEXT,
    resource=MAPS,
    dropped=TIMES,
)


@settings(max_examples=50)
@given(SPANS)
def test_a_span_comes_back(span: Span) -> None:
    # repr tells 1 from 1.0 and True, which == does not
    assert repr(load_span(dump_span(span))) == repr(span)


@settings(max_examples=50)
@given(st.builds(LogEvent, TEXT, TEXT, EVENTS))
def test_a_log_event_comes_back(log: LogEvent) -> None:
    assert repr(load_log_event(dump_log_event(log))) == repr(log)


def test_numbers_that_json_does_not_have() -> None:
    values = {"nan": math.nan, "up": math.inf, "down": -math.inf}
    read = load_span(dump_span(Span("t", "s", attributes={**values}))).attributes
    assert repr(read) == repr(values)


def test_what_is_left_out_has_defaults() -> None:
    assert load_span(b'["t","s","p"]') == Span("t", "s", "p")


@each_row("data", [b"", b"{}", b"5", b"[]", b'["t"]', b"[" + b"1," * 40 + b"1]"])
def test_what_was_never_stored_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_span(data)
    with pytest.raises(ValueError, match=r"."):
        load_log_event(data)
