"""Tables of small cases: one test goes through all rows of one, and names each row that fails."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 120

_Test = Callable[..., None]
_Param = type(pytest.param())


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> Callable[[_Test], _Test]:
    """Let one test go through a table that is written as for `pytest.mark.parametrize`.

    pytest and its workers take 3 to 5 ms for a test, which is more than most rows do. Every row is
    tried, whatever failed before it. Fixtures are those of the one test.

    Args:
        names: Arguments that the rows have values for, as a text with commas or one by one.
        rows: Values of each row: a tuple in the order of several names, the value of a single one,
            or `pytest.param` with a name of its own.
        ids: Names of the rows, or what names a value. Without them a row is shown as it is.

    Returns:
        A decorator; the test that it makes takes the other arguments of the given one.

    Raises:
        ValueError: A table has no rows or not one name for each, or a row has marks or not one
            value for each name.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    rows = list(rows)
    if not rows:
        raise ValueError(f"a table of {names} without rows tests nothing")
    if not (ids is None or callable(ids) or len(ids) == len(rows)):
        raise ValueError(f"the table of {names} has not one name for each row")
    table: list[tuple[Any, ...]] = []
    titles: list[str] = []
    for number, row in enumerate(rows):
        title = None
        if isinstance(row, _Param):
            if row.marks:
                raise ValueError(f"a row of the table of {names} has marks, which are of a test")
            values = tuple(row.values)
            title = row.id
        else:
            values = (row,) if len(arguments) == 1 else tuple(row)
        if len(values) != len(arguments):
            raise ValueError(f"a row of the table has not one value for each of {names}")
        table.append(values)
        titles.append(str(title or _title(values, number, ids)))

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def go_through(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            failed: list[str] = []
            for title, row in zip(titles, table, strict=True):
                try:
                    test(**dict(zip(arguments, row, strict=True)), **fixtures)
                # A row that skips would hide those behind it.
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as failure:
                    failure.add_note(f"in the row {title}")
                    failures.append(failure)
                    failed.append(title)
            if failures:
                text = f"{len(failed)} of {len(table)} rows fail: {', '.join(failed)}"
                raise BaseExceptionGroup(text, failures)

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in arguments]
        go_through.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return go_through

    return decorate


def _title(
    values: tuple[Any, ...], number: int, ids: Sequence[str] | Callable[[Any], str] | None
) -> str:
    """Name a row as `pytest.mark.parametrize` does, or show it."""
    if ids is None:
        return _SHOWN.repr(values[0] if len(values) == 1 else values)
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    return ids[number]
