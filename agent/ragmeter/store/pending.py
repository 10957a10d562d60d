"""Tables of pending input: open spans, and traces without passage texts.

A request's spans of one trace are one row: a dozen spans cost one insert. Memory holds their ids
and sizes (`ragmeter.ingest.assembler`) and copies of some (`ragmeter.ingest.open_traces`); the
bodies of other traces are read when the trace is closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.counters import CounterKey
from ragmeter.ingest.assembler import RestoredTrace
from ragmeter.ingest.open_spans import OpenSpanChanges, OpenSpanRow
from ragmeter.store.sqlite import (
    SqliteStore,
    TransactionStatements,
    add_counts,
    delete_ids,
    insert_rows,
)

TRACE_BYTES = 16
_KEY_BYTES = 8


def closing_statements(changes: OpenSpanChanges) -> TransactionStatements:
    """Return the statements that delete the spans of closed traces and remember their ids."""

    def run(db: sqlite3.Connection) -> None:
        traces = [(trace,) for trace, _ in changes.closed]
        db.executemany("DELETE FROM open_spans WHERE trace=?", traces)
        forget = [(trace,) for trace in changes.forgotten]
        db.executemany("DELETE FROM closed_traces WHERE trace=?", forget)
        db.executemany("INSERT OR REPLACE INTO closed_traces VALUES(?, ?)", changes.closed)

    return run


class OpenSpanTable:
    """The tables `open_spans` and `closed_traces`; safe to use from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[OpenSpanRow], counts: Mapping[CounterKey, float]) -> None:
        """Store rows, and increase counters in the same step."""
        values = (
            (row.trace, row.arrived, row.root, row.size, b"".join(row.keys), row.body)
            for row in rows
        )
        with self._store.transaction() as db:
            insert_rows(db, "open_spans", "trace, arrived, root, size, keys, body", values)
            add_counts(db, counts)

    def bodies(self, trace: bytes) -> list[tuple[int, Any]]:
        """Return (id, body) of a trace's rows in order of arrival.

        A body of a damaged file may be of any type that SQLite has.
        """
        return self._store.fetch("SELECT id, body FROM open_spans WHERE trace=? ORDER BY id", trace)

    def position(self, trace: bytes) -> int:
        """Return the id of a trace's first row, 0 if it has none."""
        query = "SELECT coalesce(min(id), 0) FROM open_spans WHERE trace=?"
        return int(self._store.fetch(query, trace)[0][0])

    def ids(self) -> set[int]:
        """Return the ids of all rows."""
        return {id_ for (id_,) in self._store.fetch("SELECT id FROM open_spans")}

    def restore(self) -> tuple[list[RestoredTrace], list[tuple[bytes, float]], int]:
        """Return the open traces by first arrival, the closed ids by time, and the broken rows.

        Broken rows belong to no trace; they are deleted and counted.
        """
        opened: dict[bytes, RestoredTrace] = {}
        broken: list[int] = []
        for id_, trace, arrived, root, size, keys in self._store.fetch(
            "SELECT id, trace, arrived, root, size, keys FROM open_spans ORDER BY id"
        ):
            if not _is_sound_row(trace=trace, arrived=arrived, root=root, size=size, keys=keys):
                broken.append(id_)
                continue
            restored = opened.setdefault(
                trace, RestoredTrace(trace=trace, first=arrived, keys=[], size=0, root=False)
            )
            restored.keys += [keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES)]
            restored.size += size
            restored.root |= bool(root)
        closed = [
            (trace, at)
            for trace, at in self._store.fetch("SELECT trace, at FROM closed_traces ORDER BY at")
            if _is_trace_id(trace) and isinstance(at, float)
        ]
        if broken:
            with self._store.transaction() as db:
                delete_ids(db, "open_spans", broken)
        return list(opened.values()), closed, len(broken)


def _is_trace_id(trace: object) -> bool:
    return isinstance(trace, bytes) and len(trace) == TRACE_BYTES


def _is_sound_row(trace: object, arrived: object, root: object, size: object, keys: object) -> bool:
    """Return whether the agent can have written the row: SQLite takes any type in any column."""
    return (
        _is_trace_id(trace)
        and isinstance(arrived, float)
        and isinstance(root, int)
        and (isinstance(size, int) and size > 0)
        and (isinstance(keys, bytes) and len(keys) > 0 and len(keys) % _KEY_BYTES == 0)
    )


@dataclass(frozen=True, slots=True)
class HeldTrace:
    """A trace that waits for the texts of its passages."""

    id: int
    body: bytes


class HeldTraceTable:
    """The table `held`; safe to use from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def rows(self, after: int, limit: int) -> list[HeldTrace]:
        """Return the next traces with `id > after`, oldest first; they stay."""
        query = "SELECT id, body FROM held WHERE id > ? ORDER BY id LIMIT ?"
        return [HeldTrace(*row) for row in self._store.fetch(query, after, limit)]

    def release(
        self, rows: Sequence[HeldTrace], counts: Mapping[CounterKey, float] | None = None
    ) -> None:
        """Queue traces with these bodies, and increase counters in the same step."""
        with self._store.transaction() as db:
            self._store.continue_queue(db)
            db.executemany(
                "INSERT INTO inbox(timestamp, received, body)"
                " SELECT timestamp, received, ? FROM held WHERE id=?",
                [(row.body, row.id) for row in rows],
            )
            delete_ids(db, "held", [row.id for row in rows])
            add_counts(db, counts or {})
        self._store.released(len(rows))
