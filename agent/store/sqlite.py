"""The SQLite store of queue, windows, counters and progress.

Two steps change it, each one transaction. `accept` makes arrivals durable, once each. `commit`
takes traces off the queue together with everything they changed. So a process that dies between
the two redoes the work from the queue, and no effect is ever there twice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ragmeter.core.counters import CounterKey
from ragmeter.core.dedupe import DedupeClock
from ragmeter.core.errors import StateError, StateLostError
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.store.rows import (
    AcceptedArrivals,
    OutboxItem,
    PendingDraws,
    QueuedTrace,
    SavedState,
    SourceProgress,
    StateCommit,
    StoredDraw,
    TierDraw,
    TraceArrival,
)
from ragmeter.store.state_file import (
    is_disk_error,
    lock_state_file,
    open_state,
    quarantine_state_file,
)

TransactionStatements = Callable[[sqlite3.Connection], None]
"""Statements of a transaction; they may run twice where the first try was rolled back."""


_PROBE_BYTES = 64 * 2**10
"""Bytes that a disk must take to count as one that can be written again."""


def add_counts(db: sqlite3.Connection, counts: Mapping[CounterKey, float]) -> None:
    """Add to the stored counters."""
    db.executemany(
        "INSERT INTO counters VALUES(?, ?, ?)"
        " ON CONFLICT DO UPDATE SET value = value + excluded.value",
        [(name, json.dumps(labels), by) for (name, labels), by in counts.items()],
    )


def _trace_key(service: str, trace_id: str) -> bytes:
    # 128 bits: no two of 10^9 ids collide but with probability 10^-20
    text = f"{len(service)}:{service}{trace_id}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()


def _parse_pairs(text: str) -> tuple[MetricScorer, ...]:
    return tuple((metric, scorer) for metric, scorer in json.loads(text))


class SqliteStore:
    """Safe to use from several threads; one transaction at a time.

    `horizon` is the dedupe horizon in event-time seconds (`ragmeter.core.dedupe`). What is deleted is
    overwritten with zeros where `overwrite` is set. `warn` is told about a quarantine. Raises
    `StateError` when the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        horizon: float = 48 * 3600,
        synchronous: str = "full",
        overwrite: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_file = lock_state_file(path)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None
        self._path = path
        self._horizon = horizon
        self._synchronous = synchronous
        self._overwrite = overwrite
        self._warn = warn
        self._mutex = threading.RLock()
        self._later: dict[str, float] = {}
        try:
            self._db, self.quarantined = open_state(path, synchronous, warn)
            try:
                self._restore()
            except (sqlite3.DatabaseError, ValueError, TypeError) as error:
                if is_disk_error(error):
                    raise StateError(f"{path}: {error}") from None
                self.quarantine(str(error))
        except BaseException:
            self._lock_file.close()
            raise

    def quarantine(self, reason: str) -> None:
        """Move the file aside and go on with an empty one; `quarantined` is then True."""
        with self._mutex:
            self._db.close()
            self._warn(quarantine_state_file(self._path, reason))
            self._db, _ = open_state(self._path, self._synchronous, self._warn)
            self.quarantined = True
            self._restore()

    def _restore(self) -> None:
        if self._overwrite:
            self._db.execute("PRAGMA secure_delete=ON")
        found = os.stat(self._path)
        self._file = (found.st_dev, found.st_ino)
        meta = self._meta()
        self._generation: int = int(meta.get("seen_generation", 0))
        self._seen = DedupeClock(self._horizon, meta.get("seen_start"), meta.get("seen_outside", 0))
        self._depth: int = self._db.execute("SELECT count(*) FROM inbox").fetchone()[0]
        self._held: int = self._db.execute("SELECT count(*) FROM held").fetchone()[0]

    def _check_file(self) -> None:
        """An open database goes on working without its name, and loses all that it is told."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise StateLostError(f"the state file {self._path} was moved or deleted while in use")

    def meta(self) -> dict[str, Any]:
        """What the last commit said of itself; nothing where that makes no sense."""
        with self._mutex:
            try:
                return self._meta()
            except ValueError:
                return {}  # `saved` will say so, and what follows from it

    def _meta(self) -> dict[str, Any]:
        rows = self._db.execute("SELECT name, value FROM meta")
        return {name: json.loads(value) for name, value in rows}

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, between two transactions; only to be read from."""
        with self._mutex:
            yield self._db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All statements or none. Raises `StateLost` where the file is gone."""
        with self._mutex:
            self._check_file()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            try:
                self._db.execute("COMMIT")
            except BaseException:
                self._db.rollback()  # a full disk fails here: nothing of the step is kept
                raise

    @property
    def depth(self) -> int:
        """Traces in the queue."""
        return self._depth

    @property
    def held_count(self) -> int:
        """Traces that wait for the texts of their passages."""
        return self._held

    def last_id(self, table: Literal["held", "inbox"]) -> int:
        """The number of the trace that came into the table last, here still or not."""
        with self._mutex:
            row = self._db.execute(
                "SELECT seq FROM sqlite_sequence WHERE name=?", (table,)
            ).fetchone()
        return int(row[0]) if row else 0

    def has_waiting(self, table: Literal["held", "inbox"], upto: int) -> bool:
        """Whether a trace with a number up to this is still in the table."""
        key = {"held": "id", "inbox": "seq"}[table]
        with self._mutex:
            (first,) = self._db.execute(f"SELECT min({key}) FROM {table}").fetchone()
        return first is not None and first <= upto

    def accept(
        self,
        arrivals: Sequence[TraceArrival],
        received: float,
        *,
        progress: SourceProgress | None = None,
        counts: dict[CounterKey, float] | None = None,
        count_duplicates: CounterKey | None = None,
        also: TransactionStatements | None = None,
    ) -> AcceptedArrivals:
        """Queue the arrivals whose ids are new, durably. `received` is wall time in seconds.

        `counts` are added to the stored counters in the same step; the number of duplicates is
        added to `count_duplicates`. `also` runs in the same transaction.
        """
        fresh: list[bool] = []
        held = 0
        with self.transaction() as db:
            generation, clock = self._generation, replace(self._seen)
            for arrival in arrivals:
                if clock.rotate(arrival.timestamp):
                    generation = 1 - generation
                    db.execute(f"DELETE FROM seen_{generation}")
                key = _trace_key(arrival.service, arrival.trace_id)
                old = db.execute(f"SELECT 1 FROM seen_{1 - generation} WHERE key=?", (key,))
                new = not old.fetchone() and bool(
                    db.execute(
                        f"INSERT OR IGNORE INTO seen_{generation} VALUES(?)", (key,)
                    ).rowcount
                )
                fresh.append(new)
                if new:
                    table = "held" if arrival.held else "inbox"
                    held += arrival.held
                    db.execute(
                        f"INSERT INTO {table}(timestamp, received, body) VALUES(?, ?, ?)",
                        (arrival.timestamp, received, arrival.body),
                    )
            done = AcceptedArrivals(tuple(fresh))
            increments = dict(counts or {})
            if count_duplicates and done.duplicates:
                increments[count_duplicates] = done.duplicates
            add_counts(db, increments)
            if also is not None:
                also(db)
            if progress:
                db.execute(
                    "INSERT OR REPLACE INTO progress VALUES(?, ?)",
                    (progress.source, progress.position),
                )
            if (generation, clock) != (self._generation, self._seen):
                self._put_meta(
                    {
                        "seen_generation": generation,
                        "seen_start": clock.start,
                        "seen_outside": clock.outside,
                    }
                )
        with self._mutex:
            # only after the commit: a step that failed has left no generation behind
            self._generation, self._seen = generation, clock
            self._depth += done.accepted - held
            self._held += held
        return done

    def released(self, number: int) -> None:
        """So many held traces are in the queue now."""
        with self._mutex:
            self._depth += number
            self._held -= number

    def _put_meta(self, meta: dict[str, Any]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO meta VALUES(?, ?)",
            [(name, json.dumps(value)) for name, value in meta.items()],
        )

    def take(self, after: int, limit: int) -> list[QueuedTrace]:
        """The next queue entries with `seq > after`, oldest first. They stay in the queue."""
        with self._mutex:
            rows = self._db.execute(
                "SELECT seq, timestamp, received, body FROM inbox WHERE seq > ?"
                " ORDER BY seq LIMIT ?",
                (after, limit),
            ).fetchall()
        return [QueuedTrace(*row) for row in rows]

    def commit(self, step: StateCommit) -> None:
        """Apply one step atomically. On an exception nothing of it was applied."""
        with self.transaction() as db:
            done = db.execute("DELETE FROM inbox WHERE seq <= ?", (step.upto,)).rowcount
            for service, segment, width, start, data in step.buckets:
                if data is None:
                    db.execute(
                        "DELETE FROM buckets WHERE service=? AND segment=? AND width=? AND start=?",
                        (service, segment, width, start),
                    )
                else:
                    db.execute(
                        "INSERT OR REPLACE INTO buckets VALUES(?, ?, ?, ?, ?)",
                        (service, segment, width, start, data),
                    )
            for (name, labels), value in step.counters:
                if value is None:
                    db.execute(
                        "DELETE FROM counters WHERE name=? AND labels=?",
                        (name, json.dumps(labels)),
                    )
                else:
                    db.execute(
                        "INSERT OR REPLACE INTO counters VALUES(?, ?, ?)",
                        (name, json.dumps(labels), value),
                    )
            db.executemany("INSERT OR REPLACE INTO evidence VALUES(?, ?, ?, ?)", step.evidence)
            db.executemany(
                "DELETE FROM evidence WHERE service=? AND trace_id=?", step.forget_evidence
            )
            db.executemany(
                "INSERT OR IGNORE INTO outbox(id, key, body, created, due) VALUES(?, ?, ?, ?, ?)",
                [
                    (item.id, item.key, item.body, item.created, item.created)
                    for item in step.outbox
                ],
            )
            self._put_meta(step.meta)
            db.executemany(
                "INSERT INTO drawn"
                "(tier, service, timestamp, probability, pairs, body, stratum, cheap)"
                " VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        draw.tier,
                        draw.service,
                        draw.timestamp,
                        draw.probability,
                        json.dumps(draw.pairs),
                        draw.body,
                        draw.stratum,
                        json.dumps(dict(draw.cheap)),
                    )
                    for draw in step.draws
                ],
            )
            db.executemany("DELETE FROM drawn WHERE id=?", [(number,) for number in step.finished])
            if step.also is not None:
                step.also(db)
        with self._mutex:
            self._depth -= done

    def pending_draws(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
        """Traces that wait for `tier` with `id > after`, oldest first. They stay."""
        with self._mutex:
            rows = self._db.execute(
                "SELECT id, service, timestamp, probability, pairs, body, stratum, cheap FROM drawn"
                " WHERE tier=? AND id > ? ORDER BY id LIMIT ?",
                (tier, after, limit),
            ).fetchall()
        return [
            StoredDraw(
                number,
                TierDraw(
                    *(tier, service, timestamp, probability),
                    *(_parse_pairs(pairs), body, stratum, json.loads(cheap)),
                ),
            )
            for number, service, timestamp, probability, pairs, body, stratum, cheap in rows
        ]

    def waiting(self) -> list[PendingDraws]:
        """How many traces wait for each tier, by service and promised pairs."""
        with self._mutex:
            rows = self._db.execute(
                "SELECT tier, service, pairs, count(*) FROM drawn GROUP BY tier, service, pairs"
            ).fetchall()
        return [
            PendingDraws(tier, service, _parse_pairs(pairs), n) for tier, service, pairs, n in rows
        ]

    def saved(self) -> SavedState:
        """Everything a restart needs. Raises ValueError when the content makes no sense."""
        with self._mutex:
            buckets = self._db.execute(
                "SELECT service, segment, width, start, data FROM buckets"
            ).fetchall()
            counters: list[tuple[CounterKey, float]] = [
                ((name, tuple((k, v) for k, v in json.loads(labels))), value)
                for name, labels, value in self._db.execute("SELECT * FROM counters")
            ]
            evidence = self._db.execute("SELECT service, trace_id FROM evidence").fetchall()
            return SavedState(buckets, counters, evidence, self._meta())

    def evidence(self, service: str, trace_id: str) -> bytes | None:
        with self._mutex:
            row = self._db.execute(
                "SELECT body FROM evidence WHERE service=? AND trace_id=?", (service, trace_id)
            ).fetchone()
        return row[0] if row else None

    def position(self, source: str) -> int:
        """How far `source` has been read; 0 for a new one."""
        with self._mutex:
            row = self._db.execute(
                "SELECT position FROM progress WHERE source=?", (source,)
            ).fetchone()
        return int(row[0]) if row else 0

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        """Notifications to be sent, oldest first; none before an older one of its key. After a
        restart all that waits is due: a time kept by another clock could be years ahead."""
        with self._mutex:
            heads = self._db.execute(
                "SELECT seq, id FROM outbox WHERE seq IN"
                " (SELECT min(seq) FROM outbox GROUP BY key) ORDER BY seq"
            )
            chosen = islice((seq for seq, id_ in heads if self._later.get(id_, now) <= now), limit)
            rows = [
                self._db.execute(
                    "SELECT id, key, body, created, attempts FROM outbox WHERE seq=?", (seq,)
                ).fetchone()
                for seq in list(chosen)
            ]
        return [OutboxItem(*row) for row in rows]

    def done(self, item_id: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM outbox WHERE id=?", (item_id,))
        with self._mutex:
            self._later.pop(item_id, None)

    def retry(self, item_id: str, at: float, error: str) -> None:
        """Not before `at` by the clock that `due` is asked with."""
        with self._mutex:
            self._later[item_id] = at  # also where the disk is full
        with self.transaction() as db:
            db.execute("UPDATE outbox SET attempts=attempts+1 WHERE id=?", (item_id,))

    def probe(self) -> None:
        """Write about as much as a small request brings, and take it away again. Raises where the
        disk does not take it."""
        with self.transaction():
            # a name that nobody reads, should the process die before it is taken away
            self._put_meta({"probe": "0" * _PROBE_BYTES})
        with self.transaction() as db:
            db.execute("DELETE FROM meta WHERE name='probe'")

    def close(self) -> None:
        with self._mutex:
            self._db.close()
            self._lock_file.close()
