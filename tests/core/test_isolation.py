"""A bad item costs itself; a bad disk costs nothing and stops the work."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pytest
from ragmeter.core.isolation import process_isolated


class Counted:
    """Work with a state that a failure leaves half changed until it is reset."""

    def __init__(self, bad: dict[int, Exception]) -> None:
        self.bad = bad
        self.durable: list[int] = []
        self.pending: list[int] = []
        self.given_up: list[int] = []

    def work(self, items: Sequence[int]) -> None:
        for item in items:
            if item in self.bad:
                raise self.bad[item]
            self.pending.append(item)
        self.durable += self.pending
        self.pending = []

    def reset(self) -> None:
        self.pending = []

    def give_up(self, item: int, error: Exception) -> None:
        assert error is self.bad[item]
        assert self.pending == []
        self.given_up.append(item)

    def run(self, items: Sequence[int]) -> None:
        process_isolated(items, self.work, reset=self.reset, give_up=self.give_up)


def test_all_at_once_where_nothing_fails() -> None:
    counted = Counted({})
    counted.run([1, 2, 3])
    assert (counted.durable, counted.given_up) == ([1, 2, 3], [])


def test_only_the_bad_ones_are_given_up_and_each_counts_once() -> None:
    counted = Counted({2: KeyError("x"), 4: sqlite3.IntegrityError("y")})
    counted.run([1, 2, 3, 4, 5])
    assert (counted.durable, counted.given_up) == ([1, 3, 5], [2, 4])


@pytest.mark.parametrize("error", [OSError("full"), MemoryError(), sqlite3.OperationalError("io")])
def test_what_no_item_is_to_blame_for_stops_the_work(error: Exception) -> None:
    counted = Counted({2: error})
    with pytest.raises(type(error)):
        counted.run([1, 2, 3])
    assert counted.given_up == []


def test_a_disk_that_fails_while_items_are_tried_alone_stops_the_work() -> None:
    counted = Counted({2: KeyError("x"), 3: OSError("full")})
    with pytest.raises(OSError, match="full"):
        counted.run([1, 2, 3])
    assert (counted.durable, counted.given_up) == ([1], [2])
