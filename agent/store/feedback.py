"""Feedback that waits for its trace, and what is remembered of traces until their labels come."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.counters import CounterKey
from agent.store.sqlite import SqliteStore, add_counts

__all__ = ["FeedbackRows", "FeedbackStep", "Kept", "LabelStore", "NewFrame", "NewRow", "Row"]


@dataclass(frozen=True, slots=True)
class NewRow:
    """Feedback on its way in: the hash of the trace's id, its service where that is known, who
    labelled, since when it waits (event time), and what it says."""

    trace: bytes
    service: str | None
    scorer: str
    since: float
    body: str


@dataclass(frozen=True, slots=True)
class Row:
    """The same once it is durable; `id` orders them."""

    id: int
    new: NewRow


@dataclass(frozen=True, slots=True)
class NewFrame:
    """Of a trace that was counted: the hash of its id, its service as it was sent, event time."""

    trace: bytes
    service: str
    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame in the table."""

    id: int
    service: str
    body: bytes


@dataclass(slots=True)
class FeedbackStep:
    """What one commit changes: frames that are new, whose labels have changed (by id), that are
    too old (`before` an event time), that are over the limit (so many of the oldest), and the
    feedback that is done with."""

    frames: Sequence[NewFrame] = ()
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


class LabelStore(Protocol):
    """Feedback and frames as `agent.labelling` reads them; a `FeedbackStep` changes them."""

    def rows(self, after: int, limit: int) -> list[Row]:
        """Feedback with `id > after`, oldest first."""

    def row(self, number: int) -> Row | None:
        """The feedback of this id."""

    def number(self, after: int = 0, upto: int = 2**62) -> int:
        """How much feedback there is with `id > after`, `upto` an id."""

    def frames(self, trace: bytes, service: str | None) -> list[Kept]:
        """The frames of a trace id, of one service or of any: of each the latest."""

    def number_of_frames(self, before: float | None = None) -> int:
        """All, or those from before an event time."""


class FeedbackRows:
    """The tables `feedback` and `frames` of an open state file. Safe from any thread; what a
    `FeedbackStep` says happens in the commit that it is part of."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def add(self, rows: Iterable[NewRow], counts: Mapping[CounterKey, float]) -> None:
        """Make them durable, with what is counted of them."""
        with self._store.transaction() as db:
            db.executemany(
                "INSERT INTO feedback(trace, service, scorer, since, body) VALUES(?, ?, ?, ?, ?)",
                [(row.trace, row.service, row.scorer, row.since, row.body) for row in rows],
            )
            add_counts(db, counts)

    def rows(self, after: int, limit: int) -> list[Row]:
        """The next ones with `id > after`, oldest first. They stay."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, trace, service, scorer, since, body FROM feedback WHERE id > ?"
                " ORDER BY id LIMIT ?",
                (after, limit),
            ).fetchall()
        return [Row(number, NewRow(*fields)) for number, *fields in found]

    def row(self, number: int) -> Row | None:
        found = self.rows(number - 1, 1)
        return found[0] if found and found[0].id == number else None

    def number(self, after: int = 0, upto: int = 2**62) -> int:
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

    def frames(self, trace: bytes, service: str | None) -> list[Kept]:
        """The frames of a trace id, of one service or of any: of each the latest."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, service, body FROM frames WHERE trace=? ORDER BY id", (trace,)
            ).fetchall()
        of = {row[1]: Kept(*row) for row in found}
        return [one for one in of.values() if service in (None, one.service)]

    def number_of_frames(self, before: float | None = None) -> int:
        with self._store.reading() as db:
            (found,) = db.execute(
                "SELECT count(*) FROM frames WHERE at < ?",
                (float("inf") if before is None else before,),
            ).fetchone()
        return int(found)
