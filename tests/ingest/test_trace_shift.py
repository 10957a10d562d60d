from __future__ import annotations

import pytest
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.ingest.replay import SHIFT_TO_LAST, SHIFT_TO_SENT, TraceShift, parse_shift

from tests.tables import each_row
from tests.traces import START, good

LIMIT = 2**20
NOW = START + 1e6


def moved(moving: TraceShift, number: int = 0) -> DecodedTrace:
    found = moving(good(number)[0], NOW, LIMIT)
    assert isinstance(found, DecodedTrace)
    return found


def test_what_is_not_moved_keeps_its_bytes() -> None:
    item, _ = good(3)
    assert TraceShift()(item, NOW, LIMIT) is item


@each_row("text", ["30d", "-90s", "0", "sent", "last"])
def test_a_shift_is_a_duration_or_a_word(text: str) -> None:
    want = {
        "30d": 2_592_000.0,
        "-90s": -90.0,
        "0": 0.0,
        "sent": SHIFT_TO_SENT,
        "last": SHIFT_TO_LAST,
    }[text]
    assert parse_shift(text) == want


@each_row("text", ["", "-", "30", "1y", "--3s", "99999w", "now"])
def test_anything_else_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|200 years"):
        parse_shift(text)


def test_all_times_move_by_the_same_and_the_rest_stays() -> None:
    item = good(5)[0]
    found = moved(TraceShift(3600.0), 5)
    assert found.trace.timestamp.timestamp() == START + 5 + 3600
    same = {"timestamp": item.trace.timestamp}
    assert found.trace.model_copy(update=same) == item.trace
    assert b"timestamp" in found.body


def test_a_trace_is_dated_when_it_is_sent() -> None:
    assert moved(TraceShift(None), 7).trace.timestamp.timestamp() == NOW


def test_ids_stay() -> None:
    assert moved(TraceShift(60.0), 1).trace.trace_id == "t1"


def test_what_cannot_be_moved_is_bad() -> None:
    found = TraceShift(190 * 365 * 86_400.0)(good(0)[0], NOW, LIMIT)
    assert isinstance(found, DecodeFailure)
    assert found.reason == "invalid_trace"
