from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from ragmeter.ingest.open_spans import OpenSpanChanges, OpenSpanRow
from ragmeter.store.pending import OpenSpanTable, closing_statements
from ragmeter.store.rows import TraceArrival
from ragmeter.store.sqlite import SqliteStore

A, B = b"a" * 16, b"b" * 16
COUNT = ("ragmeter_otlp_spans_total", (("result", "accepted"),))


def row(trace: bytes, at: float, *keys: int, root: bool = False) -> OpenSpanRow:
    names = [key.to_bytes(8) for key in keys]
    return OpenSpanRow(trace, at, root, 100 * len(keys), names, b"body of %d" % keys[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def names(*keys: int) -> list[bytes]:
    return [key.to_bytes(8) for key in keys]


def test_open_spans_are_there_after_a_restart(path: Path) -> None:
    store = SqliteStore(path)
    OpenSpanTable(store).add([row(A, 1.0, 1, 2), row(B, 1.0, 1)], {COUNT: 3})
    OpenSpanTable(store).add([row(A, 2.0, 3, root=True)], {COUNT: 1})
    store.close()
    store = SqliteStore(path)
    opened, closed, broken = OpenSpanTable(store).restore()
    assert [(one.trace, one.first, one.keys, one.size, one.root) for one in opened] == [
        (A, 1.0, names(1, 2, 3), 300, True),
        (B, 1.0, names(1), 100, False),
    ]
    assert (closed, broken) == ([], 0)
    assert OpenSpanTable(store).bodies(A) == [(1, b"body of 1"), (3, b"body of 3")]
    assert store.saved().counters == [(COUNT, 4.0)]
    store.close()


def test_closing_is_one_step_with_what_came_of_the_trace(path: Path) -> None:
    store = SqliteStore(path)
    spans = OpenSpanTable(store)
    spans.add([row(A, 1.0, 1), row(B, 1.0, 1)], {})
    arrival = TraceArrival("bot", "a", 0.0, b"{}")

    def torn(db: sqlite3.Connection) -> None:
        closing_statements(OpenSpanChanges([(A, 5.0)], []))(db)
        raise sqlite3.OperationalError("disk full")

    with pytest.raises(sqlite3.OperationalError):
        store.accept([arrival], 5.0, also=torn)
    assert store.depth == 0
    assert [one.trace for one in spans.restore()[0]] == [A, B]
    store.accept([arrival], 5.0, also=closing_statements(OpenSpanChanges([(A, 5.0)], [])))
    assert store.depth == 1
    assert spans.bodies(A) == []
    opened, closed, _ = spans.restore()
    assert ([one.trace for one in opened], closed) == ([B], [(A, 5.0)])
    store.accept([], 6.0, also=closing_statements(OpenSpanChanges([(B, 6.0)], [A])))
    assert spans.restore()[:2] == ([], [(B, 6.0)])
    store.close()


def test_rows_that_make_no_sense_are_told_and_deleted(path: Path) -> None:
    store = SqliteStore(path)
    spans = OpenSpanTable(store)
    spans.add([row(A, 1.0, 1)], {})
    with store.transaction() as db:
        for values in (
            ("text", 1.0, 0, 100, b"12345678"),
            (b"short", 1.0, 0, 100, b"12345678"),
            (B, "noon", 0, 100, b"12345678"),
            (B, 1.0, "yes", 100, b"12345678"),
            (B, 1.0, 0, -5, b"12345678"),
            (B, 1.0, 0, 100, b"123"),
            (B, 1.0, 0, 100, b""),
        ):
            db.execute(
                "INSERT INTO open_spans(trace, arrived, root, size, keys, body)"
                " VALUES(?, ?, ?, ?, ?, 'x')",
                values,
            )
        db.execute("INSERT INTO closed_traces VALUES('odd', 'never')")
    opened, closed, broken = spans.restore()
    assert ([one.trace for one in opened], closed, broken) == ([A], [], 7)
    assert spans.restore()[2] == 0
    store.close()
