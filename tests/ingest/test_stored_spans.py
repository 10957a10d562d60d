from __future__ import annotations

import random
from collections import Counter

import pytest
from ragmeter.ingest import stored_spans
from ragmeter.ingest.native import BodyLimitExceeded
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.ingest.stored_spans import (
    join_lines,
    read_stored_trace,
    serialise_log_events,
    serialise_spans,
)

TRACE = "a" * 32


def span(number: int, parent: str = "b" * 16, **attributes: str) -> Span:
    return Span(TRACE, f"{number:016x}", parent, f"span {number}", attributes={**attributes})


def log(number: int, time: int, text: str) -> LogEvent:
    return LogEvent(TRACE, f"{number:016x}", SpanEvent("gen_ai.choice", time, {"text": text}))


def test_what_is_carried_is_read_again() -> None:
    refused: Counter[str] = Counter()
    spans = [span(1, ""), span(2, query="what\nis \u2028 it?")]
    parts = serialise_spans(spans, refused)
    assert [(one.part.trace, one.part.key, one.part.root) for one in parts] == [
        (b"\xaa" * 16, (1).to_bytes(8), True),
        (b"\xaa" * 16, (2).to_bytes(8), False),
    ]
    assert all(one.part.size > len(one.line) for one in parts)
    assert read_stored_trace([join_lines(one.line for one in parts)]) == (spans, Counter())
    assert refused == Counter()


def test_log_events_join_their_span_in_one_order_whenever_they_come() -> None:
    refused: Counter[str] = Counter()
    logs = serialise_log_events(
        [log(1, 5, "b"), log(1, 5, "a"), log(1, 3, "z"), log(9, 1, "x")], refused
    )
    parts = [*logs, *serialise_spans([span(1), span(2)], refused)]
    lines = [part.line for part in parts]
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        joined, lost = read_stored_trace([join_lines(lines[:2]), join_lines(lines[2:])])
        (first,) = [one for one in joined if one.span_id == f"{1:016x}"]
        assert [event.attributes["text"] for event in first.events] == ["z", "a", "b"]
        assert lost == {("logs", "no_span"): 1}


def test_the_same_log_event_has_the_same_key() -> None:
    parts = serialise_log_events(
        [log(1, 5, "a"), log(1, 5, "a"), log(1, 6, "a"), log(2, 5, "a")], Counter()
    )
    assert parts[0].part.key == parts[1].part.key
    assert len({one.part.key for one in parts}) == 3
    assert all(one.part.log and not one.part.root for one in parts)


def test_what_is_ours_or_no_id_is_not_carried() -> None:
    refused: Counter[str] = Counter()
    ours = Span(TRACE, "1" * 16, scope="ragmeter")
    assert serialise_spans([ours, Span("no hex", "1" * 16)], refused) == []
    result = LogEvent(TRACE, "1" * 16, SpanEvent("gen_ai.evaluation.result"))
    assert (
        serialise_log_events([result, LogEvent("no hex", "", SpanEvent("gen_ai.choice"))], refused)
        == []
    )
    assert refused == {"own": 2, "internal_error": 2}


def test_a_damaged_line_costs_itself() -> None:
    lines = [one.line for one in serialise_spans([span(1), span(2)], Counter())]
    body = join_lines([lines[0], lines[1][:-5], b"", b"S[1]", b"Lnull", b"\xff\xfe"])
    spans, lost = read_stored_trace([body, 17, None, "text"])
    assert spans == [span(1)]
    assert lost == {("traces", "corrupt"): 8}


def test_a_trace_holds_a_bounded_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_spans, "MAX_VALUES", 300)
    body = join_lines(one.line for one in serialise_spans([span(n) for n in range(10)], Counter()))
    assert len(read_stored_trace([body])[0]) == 10
    with pytest.raises(BodyLimitExceeded):
        read_stored_trace([body, body])
