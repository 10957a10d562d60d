"""Offsets that were passed over are told; holes of transactions and of the retention are none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faust.types import TP

from ragmeter.core.counters import Counters
from ragmeter.kafka.consumer import (
    DELETED_UNREAD,
    ContiguousFrom,
    GapDetector,
    OffsetGap,
    check_gap,
)


def missing(
    gaps: GapDetector, partition: int, generation: int, offset: int, **more: Any
) -> list[int]:
    found = gaps.missing_offsets(
        partition, generation, offset, more.get("since", offset), more.get("committed")
    )
    return list(found)


def test_a_gap_is_told() -> None:
    gaps = GapDetector()
    assert missing(gaps, 0, 1, 7, since=0) == []
    for offset in (8, 9):
        assert missing(gaps, 0, 1, offset) == []
    assert missing(gaps, 0, 1, 12) == [10, 11]
    assert missing(gaps, 1, 1, 100, committed=98) == [98, 99], "the first of a generation"
    assert missing(gaps, 2, 1, 2) == [0, 1], "and of a group"


def test_seeks_and_generations_are_no_gaps() -> None:
    gaps = GapDetector()
    for partition, generation, offset in (
        *((0, 1, 7), (1, 1, 100), (0, 1, 8)),
        (0, 1, 5),  # sought anew: what was not acknowledged comes again
        *((0, 1, 6), (0, 2, 50), (0, 2, 51)),
        (0, 1, 7),  # left in a buffer by the generation before
        (0, 2, 52),
    ):
        assert missing(gaps, partition, generation, offset, committed=offset) == []
    assert missing(gaps, 1, 1, 102) == [101]


def test_what_the_client_has_looked_through_is_no_gap() -> None:
    gaps = GapDetector()
    assert missing(gaps, 0, 1, 7, since=5, committed=6) == [], "a mark, then one"
    assert missing(gaps, 0, 1, 12, since=8) == []
    assert missing(gaps, 0, 1, 20, since=15) == [13, 14], "looked through from 15 on only"


class _Consumer:
    def __init__(self, first: int, committed: int | None) -> None:
        self._committed_offset = {TP("t", 0): committed}
        self.first = first

    async def earliest_offsets(self, tp: TP) -> dict[TP, int]:
        return {tp: self.first}


class _App:
    def __init__(self, first: int, committed: int | None = 5) -> None:
        self.consumer = _Consumer(first, committed)


class _Message:
    tp = TP("t", 0)
    partition, generation_id, offset = 0, 1, 12
    checksum: int | None = ContiguousFrom(10)


@pytest.mark.parametrize("first", [0, 9])
def test_what_is_still_there_ends_the_worker(first: int) -> None:
    app: Any = _App(first)
    with pytest.raises(OffsetGap, match="t/0: offset 12 was delivered without those from 5 on"):
        asyncio.run(check_gap(app, GapDetector(), _Message(), Counters()))


def test_what_the_retention_has_deleted_is_counted() -> None:
    app: Any = _App(10)
    counters = Counters()
    asyncio.run(check_gap(app, GapDetector(), _Message(), counters))
    assert counters.get(DELETED_UNREAD, (("topic", "t"),)) == 5


@pytest.mark.parametrize("first", [0, 9])
def test_what_a_new_group_was_not_given_ends_the_worker(first: int) -> None:
    """Nothing is committed yet: the next commit would pass what was dropped at a takeover."""
    app: Any = _App(first, None)
    with pytest.raises(OffsetGap, match="t/0: offset 12 was delivered without those from 0 on"):
        asyncio.run(check_gap(app, GapDetector(), _Message(), Counters()))


def test_what_was_deleted_before_there_was_a_group_is_not_counted() -> None:
    app: Any = _App(10, None)
    counters = Counters()
    asyncio.run(check_gap(app, GapDetector(), _Message(), counters))
    assert list(counters.items()) == []


def test_a_checksum_of_an_old_format_says_nothing() -> None:
    app: Any = _App(10)
    message = _Message()
    message.checksum = 10
    with pytest.raises(OffsetGap):
        asyncio.run(check_gap(app, GapDetector(), message, Counters()))
