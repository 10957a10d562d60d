"""A test that goes through a table tries every row and names those that fail."""

from __future__ import annotations

import inspect
from itertools import product

import pytest

from tests.tables import each_row


def test_each_row_is_tried_once_and_in_order() -> None:
    tried: list[object] = []

    @each_row("first, second", [(1, "a"), (2, "b")])
    def pairs(first: int, second: str) -> None:
        tried.append((first, second))

    @each_row(("only",), [(3, 4), None])
    def single(only: object) -> None:
        tried.append(only)

    pairs()
    single()
    assert tried == [(1, "a"), (2, "b"), (3, 4), None]


def test_all_rows_that_fail_are_named_and_the_others_are_tried() -> None:
    @each_row("number", range(6), ids=lambda number: f"row {number}")
    def check(number: int) -> None:
        if number == 1:
            raise KeyError("one")
        if number == 2:
            with pytest.raises(ValueError, match="two"):
                pass
        if number == 3:
            pytest.skip("no row ends the table")
        assert number != 5

    with pytest.raises(BaseExceptionGroup) as raised:
        check()
    assert raised.value.message == "4 of 6 rows fail: row 1, row 2, row 3, row 5"
    assert [type(failure).__name__ for failure in raised.value.exceptions] == [
        "KeyError",
        "Failed",
        "Skipped",
        "AssertionError",
    ]
    assert raised.value.exceptions[3].__notes__ == ["in the row row 5"]


@pytest.mark.parametrize("ids", [None, ["long"], str])
def test_what_names_a_row_is_bounded_or_given(ids: list[str] | None) -> None:
    @each_row("text", ["x" * 10_000 if ids is None else "long"], ids=ids)
    def check(text: str) -> None:
        raise ValueError(len(text))

    with pytest.raises(ExceptionGroup) as raised:
        check()
    assert len(raised.value.message) < 200
    assert ids is None or raised.value.message.endswith(": long")


def test_a_row_of_pytest_is_its_values_and_its_name() -> None:
    tried: list[object] = []

    @each_row("first, second", [(1, 2), pytest.param(3, 4, id="three and four")])
    def pairs(first: int, second: int) -> None:
        tried.append((first, second))
        assert first == 1

    @each_row("only", [pytest.param((5, 6)), 7])
    def single(only: object) -> None:
        tried.append(only)

    with pytest.raises(ExceptionGroup, match="1 of 2 rows fail: three and four"):
        pairs()
    single()
    assert tried == [(1, 2), (3, 4), (5, 6), 7]


def test_tables_on_each_other_try_each_pair_and_name_it() -> None:
    tried = []

    @each_row("first", [1, 2])
    @each_row("second", "ab")
    def check(first: int, second: str) -> None:
        tried.append((first, second))
        assert (first, second) != (2, "b")

    with pytest.raises(ExceptionGroup) as raised:
        check()
    assert tried == [*product([1, 2], "ab")]
    assert raised.value.message == "1 of 2 rows fail: 2"
    inner = raised.value.exceptions[0]
    assert isinstance(inner, ExceptionGroup)
    assert inner.message == "1 of 2 rows fail: 'b'"


def test_fixtures_stay_arguments_of_the_test() -> None:
    @each_row("row", [1, 2])
    def check(row: int, fixture: list[int]) -> None:
        fixture.append(row)

    assert [*inspect.signature(check).parameters] == ["fixture"]
    seen: list[int] = []
    check(fixture=seen)
    assert seen == [1, 2]


def test_a_table_that_would_test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="without rows"):
        each_row("one", [])
    with pytest.raises(ValueError, match="one value for each"):
        each_row("one, two", [(1, 2), (1, 2, 3)])
    with pytest.raises(ValueError, match="one name for each"):
        each_row("one", [1, 2], ids=["first"])
    with pytest.raises(ValueError, match="one name for each"):
        each_row("one", [1], ids=["first", "second"])
    with pytest.raises(ValueError, match="has marks"):
        each_row("one", [1, pytest.param(2, marks=pytest.mark.slow)])


def test_an_interrupt_ends_the_table() -> None:
    @each_row("row", [1, 2])
    def check(row: int) -> None:
        assert row == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check()
