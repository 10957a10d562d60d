"""Tables of pending input: open spans, traces without passage texts, and feedback.

Spans of traces that are not complete yet, in the state file.

What a request brings of one trace is one row: a dozen spans cost one insert. The memory keeps ids
and sizes (`ragmeter.ingest.assembler`) and some copies (`ragmeter.embedded.open_traces`); the bodies of other
traces are read when they are closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ragmeter.core.counters import CounterKey
from ragmeter.ingest.assembler import RestoredTrace
from ragmeter.store.sqlite import SqliteStore, TransactionStatements, add_counts

TRACE_BYTES = 16
_KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class OpenSpanRow:
    """What one request brought of one trace: the keys in `keys`, `size` as the assembler
    counts it, and the body."""

    trace: bytes
    arrived: float
    root: bool
    size: int
    keys: Sequence[bytes]
    body: bytes


class OpenSpanTable:
    """The tables `open_spans` and `closed_traces` of an open state file. Safe from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[OpenSpanRow], counts: Mapping[CounterKey, float]) -> None:
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
    def closing(
        closed: Sequence[tuple[bytes, float]], forgotten: Sequence[bytes]
    ) -> TransactionStatements:
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

    def restore(self) -> tuple[list[RestoredTrace], list[tuple[bytes, float]], int]:
        """The open traces by first arrival, the closed ids by time, and how many rows made no
        sense: those are deleted, since they can belong to no trace."""
        opened: dict[bytes, RestoredTrace] = {}
        broken: list[int] = []
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT id, trace, arrived, root, size, keys FROM open_spans ORDER BY id"
            )
            for number, trace, arrived, root, size, keys in rows:
                if not _is_sound_row(trace, arrived, root, size, keys):
                    broken.append(number)
                    continue
                one = opened.setdefault(trace, RestoredTrace(trace, arrived, [], 0, False))
                one.keys += [keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES)]
                one.size += size
                one.root |= bool(root)
            closed = [
                (trace, at)
                for trace, at in db.execute("SELECT trace, at FROM closed_traces ORDER BY at")
                if _is_trace_id(trace) and isinstance(at, float)
            ]
        if broken:
            with self._store.transaction() as db:
                db.executemany("DELETE FROM open_spans WHERE id=?", [(id_,) for id_ in broken])
        return list(opened.values()), closed, len(broken)


def _is_trace_id(trace: object) -> bool:
    return isinstance(trace, bytes) and len(trace) == TRACE_BYTES


def _is_sound_row(trace: object, arrived: object, root: object, size: object, keys: object) -> bool:
    """Whether a row can be one of ours: SQLite takes anything into any column."""
    return (
        _is_trace_id(trace)
        and isinstance(arrived, float)
        and isinstance(root, int)
        and isinstance(size, int)
        and size > 0
        and isinstance(keys, bytes)
        and len(keys) > 0
        and len(keys) % _KEY_BYTES == 0
    )


@dataclass(frozen=True, slots=True)
class HeldTrace:
    id: int
    body: bytes


class HeldTraceTable:
    """The table `held` of an open state file. Safe from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def rows(self, after: int, limit: int) -> list[HeldTrace]:
        """The next ones with `id > after`, oldest first. They stay."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, body FROM held WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            ).fetchall()
        return [HeldTrace(*row) for row in found]

    def release(
        self, rows: Sequence[HeldTrace], counts: Mapping[CounterKey, float] | None = None
    ) -> None:
        """Put them into the queue with these bodies, in one step with what is counted of them."""
        with self._store.transaction() as db:
            for row in rows:
                db.execute(
                    "INSERT INTO inbox(timestamp, received, body)"
                    " SELECT timestamp, received, ? FROM held WHERE id=?",
                    (row.body, row.id),
                )
            db.executemany("DELETE FROM held WHERE id=?", [(row.id,) for row in rows])
            add_counts(db, counts or {})
        self._store.released(len(rows))


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """Feedback on its way in: the hash of the trace's id, its service where that is known, who
    labelled, since when it waits (event time), and what it says."""

    trace: bytes
    service: str | None
    scorer: str
    since: float
    body: str


@dataclass(frozen=True, slots=True)
class StoredFeedback:
    """The same once it is durable; `id` orders them."""

    id: int
    new: NewFeedback


@dataclass(frozen=True, slots=True)
class NewRememberedTrace:
    """Of a trace that was counted: the hash of its id, its service as it was sent, event time."""

    trace: bytes
    service: str
    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class RememberedTrace:
    """A frame in the table."""

    id: int
    service: str
    body: bytes


@dataclass(slots=True)
class FeedbackChanges:
    """What one commit changes: frames that are new, whose labels have changed (by id), that are
    too old (`before` an event time), that are over the limit (so many of the oldest), and the
    feedback that is done with."""

    frames: Sequence[NewRememberedTrace] = ()
    labelled: Sequence[tuple[int, bytes]] = ()
    before: float | None = None
    shed: int = 0
    done: Sequence[int] = field(default_factory=list)

    def __call__(self, db: sqlite3.Connection) -> None:
        if self.before is not None:
            db.execute("DELETE FROM frames WHERE at < ?", (self.before,))
        db.executemany(
            "INSERT INTO frames(trace, service, at, body) VALUES(?, ?, ?, ?)",
            [(one.trace, one.service, one.at, one.body) for one in self.frames],
        )
        if self.shed:
            db.execute(
                "DELETE FROM frames WHERE id IN (SELECT id FROM frames ORDER BY at, id LIMIT ?)",
                (self.shed,),
            )
        db.executemany(
            "UPDATE frames SET body=? WHERE id=?", [(body, id_) for id_, body in self.labelled]
        )
        db.executemany("DELETE FROM feedback WHERE id=?", [(id_,) for id_ in self.done])


class FeedbackStore(Protocol):
    """Feedback and frames as `ragmeter.aggregate` reads them; a `FeedbackStep` changes them."""

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        """Feedback with `id > after`, oldest first."""

    def row(self, number: int) -> StoredFeedback | None:
        """The feedback of this id."""

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        """How much feedback there is with `id > after`, `upto` an id."""

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        """The frames of a trace id, of one service or of any: of each the latest."""

    def count_remembered(self, before: float | None = None) -> int:
        """All, or those from before an event time."""


class FeedbackTable:
    """The tables `feedback` and `frames` of an open state file. Safe from any thread; what a
    `FeedbackStep` says happens in the commit that it is part of."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[NewFeedback], counts: Mapping[CounterKey, float]) -> None:
        """Make them durable, with what is counted of them."""
        with self._store.transaction() as db:
            db.executemany(
                "INSERT INTO feedback(trace, service, scorer, since, body) VALUES(?, ?, ?, ?, ?)",
                [(row.trace, row.service, row.scorer, row.since, row.body) for row in rows],
            )
            add_counts(db, counts)

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        """The next ones with `id > after`, oldest first. They stay."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, trace, service, scorer, since, body FROM feedback WHERE id > ?"
                " ORDER BY id LIMIT ?",
                (after, limit),
            ).fetchall()
        return [StoredFeedback(number, NewFeedback(*fields)) for number, *fields in found]

    def row(self, number: int) -> StoredFeedback | None:
        found = self.rows(number - 1, 1)
        return found[0] if found and found[0].id == number else None

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        """How much feedback with `id > after` is in the table, `upto` an id."""
        with self._store.reading() as db:
            (found,) = db.execute(
                "SELECT count(*) FROM feedback WHERE id > ? AND id <= ?", (after, upto)
            ).fetchone()
        return int(found)

    def last(self) -> int:
        """The id of the feedback that came last, here still or not."""
        with self._store.reading() as db:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name='feedback'").fetchone()
        return int(row[0]) if row else 0

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        """The frames of a trace id, of one service or of any: of each the latest."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, service, body FROM frames WHERE trace=? ORDER BY id", (trace,)
            ).fetchall()
        of = {row[1]: RememberedTrace(*row) for row in found}
        return [one for one in of.values() if service in (None, one.service)]

    def count_remembered(self, before: float | None = None) -> int:
        with self._store.reading() as db:
            (found,) = db.execute(
                "SELECT count(*) FROM frames WHERE at < ?",
                (float("inf") if before is None else before,),
            ).fetchone()
        return int(found)
