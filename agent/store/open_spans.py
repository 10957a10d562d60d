"""Spans of traces that are not complete yet, in the state file.

What a request brings of one trace is one row: a dozen spans cost one insert. The memory keeps ids
and sizes (`agent.ingest.assembler`) and some copies (`agent.ingest.copies`); the bodies of other
traces are read when they are closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.counters import CounterKey
from agent.ingest.assembler import Restored
from agent.store.sqlite import SqliteStore, Statements, add_counts

__all__ = ["KEY_BYTES", "TRACE_BYTES", "OpenSpans", "Row"]

TRACE_BYTES = 16
KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """What one request brought of one trace: the keys in `keys`, `size` as the assembler
    counts it, and the body."""

    trace: bytes
    arrived: float
    root: bool
    size: int
    keys: Sequence[bytes]
    body: bytes


class OpenSpans:
    """The tables `open_spans` and `closed_traces` of an open state file. Safe from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[Row], counts: Mapping[CounterKey, float]) -> None:
        """Make them durable, together with the counts of what came."""
        with self._store.transaction() as db:
            db.executemany(
                "INSERT INTO open_spans(trace, arrived, root, size, keys, body)"
                " VALUES(?, ?, ?, ?, ?, ?)",
                [
                    (row.trace, row.arrived, row.root, row.size, b"".join(row.keys), row.body)
                    for row in rows
                ],
            )
            add_counts(db, counts)

    def bodies(self, trace: bytes) -> list[tuple[int, Any]]:
        """Row ids and bodies of a trace in the order in which they came; a body of a damaged file
        may be anything that SQLite knows."""
        with self._store.reading() as db:
            return db.execute(
                "SELECT id, body FROM open_spans WHERE trace=? ORDER BY id", (trace,)
            ).fetchall()

    def position(self, trace: bytes) -> int:
        """The id of a trace's first row, 0 where it has none."""
        with self._store.reading() as db:
            (found,) = db.execute(
                "SELECT MIN(id) FROM open_spans WHERE trace=?", (trace,)
            ).fetchone()
        return found or 0

    def ids(self) -> set[int]:
        """Of all rows."""
        with self._store.reading() as db:
            return {number for (number,) in db.execute("SELECT id FROM open_spans")}

    @staticmethod
    def closing(closed: Sequence[tuple[bytes, float]], forgotten: Sequence[bytes]) -> Statements:
        """What closes traces: their spans go, their ids are remembered with the time, and other
        ids are forgotten."""

        def run(db: sqlite3.Connection) -> None:
            db.executemany(
                "DELETE FROM open_spans WHERE trace=?", [(trace,) for trace, _ in closed]
            )
            db.executemany("INSERT OR REPLACE INTO closed_traces VALUES(?, ?)", closed)
            db.executemany(
                "DELETE FROM closed_traces WHERE trace=?", [(trace,) for trace in forgotten]
            )

        return run

    def restore(self) -> tuple[list[Restored], list[tuple[bytes, float]], int]:
        """The open traces by first arrival, the closed ids by time, and how many rows made no
        sense: those are deleted, since they can belong to no trace."""
        opened: dict[bytes, Restored] = {}
        broken: list[int] = []
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT id, trace, arrived, root, size, keys FROM open_spans ORDER BY id"
            )
            for number, trace, arrived, root, size, keys in rows:
                if not _sound(trace, arrived, root, size, keys):
                    broken.append(number)
                    continue
                one = opened.setdefault(trace, Restored(trace, arrived, [], 0, False))
                one.keys += [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
                one.size += size
                one.root |= bool(root)
            closed = [
                (trace, at)
                for trace, at in db.execute("SELECT trace, at FROM closed_traces ORDER BY at")
                if _is_id(trace) and isinstance(at, float)
            ]
        if broken:
            with self._store.transaction() as db:
                db.executemany("DELETE FROM open_spans WHERE id=?", [(id_,) for id_ in broken])
        return list(opened.values()), closed, len(broken)


def _is_id(trace: object) -> bool:
    return isinstance(trace, bytes) and len(trace) == TRACE_BYTES


def _sound(trace: object, arrived: object, root: object, size: object, keys: object) -> bool:
    """Whether a row can be one of ours: SQLite takes anything into any column."""
    return (
        _is_id(trace)
        and isinstance(arrived, float)
        and isinstance(root, int)
        and isinstance(size, int)
        and size > 0
        and isinstance(keys, bytes)
        and len(keys) > 0
        and len(keys) % KEY_BYTES == 0
    )
