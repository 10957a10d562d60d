"""Copies of open spans are there whole or not at all, and are what would be read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ragmeter.ingest.span_copies import SpanCopies
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.ingest.stored_spans import (
    MAX_VALUES,
    StoredPart,
    join_lines,
    read_stored_trace,
    serialise_log_events,
    serialise_spans,
)

A = bytes(15) + b"\1"
B = bytes(15) + b"\2"
C = bytes(15) + b"\3"


def parts(number: int = 1, **attributes: Any) -> list[StoredPart]:
    spans = [Span(f"{1:032x}", f"{n + 1:016x}", attributes=attributes) for n in range(number)]
    return serialise_spans(spans, Counter())


def test_a_copy_is_what_would_be_read() -> None:
    sent = parts(3, text="ä \U0001f600 \"'\\\n", numbers=[1, -0.0, 1e300, 2**60], map={"a": None})
    copies = SpanCopies(2**20)
    copies.add(A, sent[:2], new=True)
    copies.add(A, sent[2:], new=False)
    assert copies.take(A) == read_stored_trace([join_lines(one.line for one in sent)])[0]
    assert (copies.take(A), copies.size) == (None, 0)


def test_of_a_trace_that_was_open_before_there_is_no_copy() -> None:
    copies = SpanCopies(2**20)
    copies.add(A, parts(), new=False)
    assert copies.take(A) is None


def test_what_does_not_fit_is_left_out_whole() -> None:
    one = parts(text="x" * 1300)
    copies = SpanCopies(5_000)
    copies.add(A, one, new=True)
    copies.add(B, one, new=True)
    before = copies.size
    assert 2_000 < before <= 5_000
    copies.add(B, one, new=False)
    assert copies.size == before / 2
    copies.add(B, one, new=False)  # the file has more of it than would be here
    assert copies.take(B) is None
    assert copies.take(A) is not None
    nothing = SpanCopies(0)
    nothing.add(A, one, new=True)
    assert nothing.take(A) is None


@pytest.mark.parametrize(
    "held", [{"text": "x" * MAX_VALUES}, {"lists": [[]] * 20_000}], ids=["bytes", "values"]
)
def test_a_trace_that_is_large_once_decoded_is_left_to_the_file(held: dict[str, Any]) -> None:
    copies = SpanCopies(2**30)
    copies.add(A, parts(**held), new=True)
    assert (copies.take(A), copies.size) == (None, 0)


def test_a_trace_with_log_events_is_left_to_the_file() -> None:
    log = LogEvent(f"{1:032x}", f"{1:016x}", SpanEvent("gen_ai.choice", 1, {}))
    copies = SpanCopies(2**20)
    copies.add(A, parts(), new=True)
    copies.add(A, serialise_log_events([log], Counter()), new=False)
    copies.add(C, [*parts(), *serialise_log_events([log], Counter())], new=True)
    assert (copies.take(A), copies.take(C), copies.size) == (None, None, 0)
