from __future__ import annotations

import shlex

import pytest

from agent.ingest.native import Bad, Good
from agent.replay.moving import LAST, SENT, Moving, parse_shift
from agent.trace import MAX_ID
from tests.traces import START, good

LIMIT = 2**20
NOW = START + 1e6


def moved(moving: Moving, number: int = 0) -> Good:
    found = moving(good(number)[0], NOW, LIMIT)
    assert isinstance(found, Good)
    return found


def test_what_is_not_moved_keeps_its_bytes() -> None:
    item, _ = good(3)
    assert Moving()(item, NOW, LIMIT) is item


@pytest.mark.parametrize("text", ["30d", "-90s", "0", "sent", "last"])
def test_a_shift_is_a_duration_or_a_word(text: str) -> None:
    want = {"30d": 2_592_000.0, "-90s": -90.0, "0": 0.0, "sent": SENT, "last": LAST}[text]
    assert parse_shift(text) == want


@pytest.mark.parametrize("text", ["", "-", "30", "1y", "--3s", "99999w", "now"])
def test_anything_else_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|200 years"):
        parse_shift(text)


def test_all_times_move_by_the_same_and_the_rest_stays() -> None:
    item, found = good(5)[0], moved(Moving(3600.0), 5)
    assert found.trace.timestamp.timestamp() == START + 5 + 3600
    same = {"timestamp": item.trace.timestamp}
    assert found.trace.model_copy(update=same) == item.trace
    assert b"timestamp" in found.body


def test_a_trace_is_dated_when_it_is_sent() -> None:
    assert moved(Moving(None), 7).trace.timestamp.timestamp() == NOW


def test_ids_change_only_where_that_is_asked_for() -> None:
    assert moved(Moving(60.0), 1).trace.trace_id == "t1"
    assert moved(Moving(0.0, "-again"), 1).trace.trace_id == "t1-again"
    assert moved(Moving(0.0, "-again"), 1).trace.timestamp.timestamp() == START + 1


def test_what_cannot_be_moved_is_bad() -> None:
    for moving in (Moving(0.0, "x" * MAX_ID), Moving(190 * 365 * 86_400.0)):
        found = moving(good(0)[0], NOW, LIMIT)
        assert isinstance(found, Bad)
        assert found.reason == "invalid_trace"


@pytest.mark.parametrize(
    "moving", [Moving(), Moving(90.0), Moving(-90.0), Moving(None, "-b"), Moving(0.0, "a $b")]
)
def test_the_options_say_the_same_again(moving: Moving) -> None:
    given = dict(word.split("=", 1) for word in shlex.split(moving.options()))
    shift = parse_shift(given.get("--shift", "0"))
    again = Moving(None if shift == SENT else float(shift), given.get("--id-suffix", ""))
    assert again == moving
