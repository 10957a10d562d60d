"""Traces that wait for the texts of their passages, before they join the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.counters import CounterKey
from agent.store.sqlite import SqliteStore, add_counts

__all__ = ["Held", "HeldTraces"]


@dataclass(frozen=True, slots=True)
class Held:
    id: int
    body: bytes


class HeldTraces:
    """The table `held` of an open state file. Safe from any thread."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def rows(self, after: int, limit: int) -> list[Held]:
        """The next ones with `id > after`, oldest first. They stay."""
        with self._store.reading() as db:
            found = db.execute(
                "SELECT id, body FROM held WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            ).fetchall()
        return [Held(*row) for row in found]

    def release(
        self, rows: Sequence[Held], counts: Mapping[CounterKey, float] | None = None
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
