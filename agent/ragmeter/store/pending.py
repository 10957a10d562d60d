"""Tables of pending input: open spans, traces without passage texts, and feedback.

A request's spans of one trace are one row: a dozen spans cost one insert. Memory holds their ids
and sizes (`ragmeter.ingest.assembler`) and copies of some (`ragmeter.embedded.open_traces`); the
bodies of other traces are read when the trace is closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ragmeter.core.counters import CounterKey
from ragmeter.ingest.assembler import RestoredTrace
from ragmeter.store.sqlite import SqliteStore, add_counts, delete_ids, insert_rows

TRACE_BYTES = 16
_KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class OpenSpanRow:
    """The spans of one trace in one request.

    Args:
        trace: The OpenTelemetry trace id.
        root: Whether the root span is among them.
        size: Bytes as the assembler counts them.
        keys: Keys of the spans, eight bytes each.
    """

    trace: bytes
    arrived: float
    root: bool
    size: int
    keys: Sequence[bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class OpenSpanChanges:
    """The closing of traces, called with the connection of its transaction.

    Args:
        closed: (trace id, time) of traces whose spans are deleted and whose ids are remembered.
        forgotten: Ids of closed traces to forget.
    """

    closed: Sequence[tuple[bytes, float]]
    forgotten: Sequence[bytes] = ()

    def __call__(self, db: sqlite3.Connection) -> None:
        """Run the statements."""
        traces = [(trace,) for trace, _ in self.closed]
        db.executemany("DELETE FROM open_spans WHERE trace=?", traces)
        forget = [(trace,) for trace in self.forgotten]
        db.executemany("DELETE FROM closed_traces WHERE trace=?", forget)
        db.executemany("INSERT OR REPLACE INTO closed_traces VALUES(?, ?)", self.closed)


class OpenSpanStore(Protocol):
    """Stored spans of open traces, as `ragmeter.embedded.open_traces` writes and restores them."""

    def add(self, rows: Iterable[OpenSpanRow], counts: Mapping[CounterKey, float]) -> None:
        """Store rows, and increase counters in the same step."""

    def restore(self) -> tuple[list[RestoredTrace], list[tuple[bytes, float]], int]:
        """Return the open traces by first arrival, the closed ids by time, and the broken rows."""


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
            db.executemany(
                "INSERT INTO inbox(timestamp, received, body)"
                " SELECT timestamp, received, ? FROM held WHERE id=?",
                [(row.body, row.id) for row in rows],
            )
            delete_ids(db, "held", [row.id for row in rows])
            add_counts(db, counts or {})
        self._store.released(len(rows))


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """Feedback on its way in.

    Args:
        trace: Hash of the trace's id.
        since: Event time since when it waits.
        body: The feedback as JSON.
    """

    trace: bytes
    service: str | None
    scorer: str
    since: float
    body: str


@dataclass(frozen=True, slots=True)
class StoredFeedback:
    """Stored feedback; `id` orders it."""

    id: int
    new: NewFeedback


class NewRememberedTrace(NamedTuple):
    """A counted trace to remember for its labels, by the hash of its id and its event time."""

    trace: bytes
    service: str
    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class RememberedTrace:
    """A stored trace that may get labels."""

    id: int
    service: str
    body: bytes


@dataclass(slots=True)
class FeedbackChanges:
    """The changes of one commit, called with its connection.

    Args:
        frames: Traces to remember.
        labelled: (id, body) of remembered traces with new labels.
        before: Forget traces from before this event time.
        shed: Forget so many of the oldest traces, those over the limit.
        done: Ids of feedback that is done.
    """

    frames: Sequence[NewRememberedTrace] = ()
    labelled: Sequence[tuple[int, bytes]] = ()
    before: float | None = None
    shed: int = 0
    done: Sequence[int] = ()

    def __call__(self, db: sqlite3.Connection) -> None:
        """Run the statements."""
        if self.before is not None:
            db.execute("DELETE FROM frames WHERE at < ?", (self.before,))
        rows = [(one.trace, one.service, one.at, one.body) for one in self.frames]
        insert_rows(db, "frames", "trace, service, at, body", rows)
        if self.shed:
            db.execute(
                "DELETE FROM frames WHERE id IN (SELECT id FROM frames ORDER BY at, id LIMIT ?)",
                (self.shed,),
            )
        bodies = [(body, id_) for id_, body in self.labelled]
        db.executemany("UPDATE frames SET body=? WHERE id=?", bodies)
        delete_ids(db, "feedback", self.done)


class FeedbackStore(Protocol):
    """Stored feedback and remembered traces, as `ragmeter.aggregate` reads them."""

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        """Return the next feedback with `id > after`, oldest first; it stays."""

    def row(self, number: int) -> StoredFeedback | None:
        """Return the feedback with this id."""

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        """Count the feedback with `after < id <= upto`."""

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        """Return the traces with this id, of one service or all; the latest of each service."""

    def count_remembered(self, before: float | None = None) -> int:
        """Count remembered traces, all or those from before an event time."""


class FeedbackTable:
    """The tables `feedback` and `frames`; safe to use from any thread.

    `FeedbackChanges` take effect in the commit that they are part of.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[NewFeedback], counts: Mapping[CounterKey, float]) -> None:
        """Store feedback, and increase counters in the same step."""
        values = [(row.trace, row.service, row.scorer, row.since, row.body) for row in rows]
        with self._store.transaction() as db:
            insert_rows(db, "feedback", "trace, service, scorer, since, body", values)
            add_counts(db, counts)

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        """Return the next feedback with `id > after`, oldest first; it stays."""
        rows = self._store.fetch(
            "SELECT id, trace, service, scorer, since, body FROM feedback WHERE id > ?"
            " ORDER BY id LIMIT ?",
            after,
            limit,
        )
        return [StoredFeedback(id_, NewFeedback(*fields)) for id_, *fields in rows]

    def row(self, number: int) -> StoredFeedback | None:
        """Return the feedback with this id."""
        rows = self.rows(number - 1, 1)
        return rows[0] if rows and rows[0].id == number else None

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        """Count the feedback with `after < id <= upto`."""
        query = "SELECT count(*) FROM feedback WHERE id > ? AND id <= ?"
        return int(self._store.fetch(query, after, upto)[0][0])

    def last(self) -> int:
        """Return the id of the latest feedback, even if it is gone."""
        return self._store.last_id("feedback")

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        """Return the traces with this id, of one service or all; the latest of each service."""
        rows = self._store.fetch(
            "SELECT id, service, body FROM frames WHERE trace=? ORDER BY id", trace
        )
        latest = {row[1]: RememberedTrace(*row) for row in rows}
        return [one for one in latest.values() if service in (None, one.service)]

    def count_remembered(self, before: float | None = None) -> int:
        """Count remembered traces, all or those from before an event time."""
        time = float("inf") if before is None else before
        return int(self._store.fetch("SELECT count(*) FROM frames WHERE at < ?", time)[0][0])
