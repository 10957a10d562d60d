"""The SQLite store of queue, windows, counters and progress.

Two steps change it, each one transaction. `accept` stores arrivals, once each. `commit` takes
traces off the queue together with everything they changed. So a process that dies between the two
redoes the work from the queue, and no effect is stored twice. Arrivals of a source that gives them
again, as a file does, wait in memory alone: their `commit` stores how far the source was read and
which traces are known, and a process that dies before it reads them again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import Any, Literal

from ragmeter.core.counters import CounterKey, Labels
from ragmeter.core.dedupe import DedupeClock
from ragmeter.core.errors import QueueFull, StateError, StateLostError
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
    StoreOptions,
    TierDraw,
    TraceArrival,
)
from ragmeter.store.state_file import (
    describe_disk_error,
    is_disk_error,
    lock_state_file,
    open_state,
    quarantine_state_file,
)

# Statements of a transaction; they may run twice if the first attempt was rolled back.
TransactionStatements = Callable[[sqlite3.Connection], None]

_DRAW_COLUMNS = "tier, service, timestamp, probability, pairs, body, stratum, cheap"
_OUTBOX = "SELECT id, key, body, created FROM outbox ORDER BY seq"
_PROBE_BYTES = 64 * 2**10  # a disk must take so many to count as writable again
# Decoded traces that wait in memory besides their rows: two commits of the worker, and at most
# 8 MiB of JSON, which is 25 MiB of objects.
_KEPT_TRACES = 1024
_KEPT_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class _MemoryBatch:
    """Arrivals of a source that gives them again, with what their commit is to store."""

    rows: Sequence[QueuedTrace]
    keys: Sequence[bytes]
    progress: SourceProgress
    counts: Mapping[CounterKey, float]

    @property
    def last(self) -> int:
        """The `seq` of the last row."""
        return self.rows[-1].seq


class SqliteStore:
    """The store; safe to use from several threads, one transaction at a time.

    Args:
        path: The state file. One that cannot be used raises `StateError`.
        warn: Called with a text when a corrupt file is quarantined.
    """

    def __init__(
        self,
        path: Path,
        options: StoreOptions | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        path = Path(os.path.realpath(path))  # one lock, whatever link leads to the file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_file = lock_state_file(path)
        except OSError as error:
            raise StateError(describe_disk_error(path, error)) from None
        self._path = path
        self._options = options or StoreOptions()
        self._warn = warn
        self._mutex = threading.RLock()
        # rows of the queue, oldest first and without a gap; the table has those of no memory batch
        self._kept: deque[QueuedTrace] = deque()
        self._kept_bytes = 0
        self._memory: deque[_MemoryBatch] = deque()  # not committed
        self._memory_keys: set[bytes] = set()
        try:
            self._db, self.quarantined = open_state(path, self._options.synchronous, warn)
            try:
                self._restore()
            except (sqlite3.DatabaseError, ValueError, TypeError) as error:
                if is_disk_error(error):
                    self._db.close()
                    raise StateError(f"{path}: {error}") from None
                self.quarantine(str(error))
        except BaseException:
            self._lock_file.close()
            raise

    def quarantine(self, reason: str) -> None:
        """Move the file aside and continue with an empty one; sets `quarantined`."""
        with self._mutex:
            self._db.close()
            self._warn(quarantine_state_file(self._path, reason))
            self._db, _ = open_state(self._path, self._options.synchronous, self._warn)
            self.quarantined = True
            self._restore()

    def _restore(self) -> None:
        if self._options.overwrite:
            self._db.execute("PRAGMA secure_delete=ON")
        self._file = self._file_identity()
        meta = self._meta()
        self._generation: int = int(meta.get("seen_generation", 0))
        self._seen = DedupeClock(
            self._options.horizon, meta.get("seen_start"), meta.get("seen_outside", 0)
        )
        self._kept.clear()
        self._kept_bytes = 0
        self._memory.clear()
        self._memory_keys.clear()
        self._saved_meta: dict[str, str] = {}  # what `commit` has written, as JSON
        self._depth: int = self.fetch("SELECT count(*) FROM inbox")[0][0]
        self._held: int = self.fetch("SELECT count(*) FROM held")[0][0]

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def fetch(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query, run between two transactions."""
        with self._mutex:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run all statements of the block or none.

        Raises:
            StateLostError: The file is gone. The open database would go on working without its
                name, and lose all that is written to it.
        """
        with self._mutex:
            identity = self._file_identity()
            if identity is None or identity != self._file:
                raise StateLostError(
                    f"the state file {self._path} was moved or deleted while in use"
                )
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")  # fails on a full disk
            except BaseException:
                self._db.rollback()
                raise

    def meta(self) -> dict[str, Any]:
        """Return the `meta` of the last commit, nothing if it is corrupt (`saved` reports that)."""
        try:
            return self._meta()
        except ValueError:
            return {}

    def _meta(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self.fetch("SELECT * FROM meta")}

    def _put_meta(self, meta: dict[str, Any]) -> None:
        rows = [(name, json.dumps(value)) for name, value in meta.items()]
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", rows)

    @property
    def depth(self) -> int:
        """Traces in the queue."""
        return self._depth

    @property
    def crowded(self) -> bool:
        """Whether a further trace would have to be decoded again when it leaves the queue."""
        return len(self._kept) >= _KEPT_TRACES or self._kept_bytes >= _KEPT_BYTES

    @property
    def held_count(self) -> int:
        """Traces that wait for the texts of their passages."""
        return self._held

    def last_id(self, table: Literal["held", "inbox"]) -> int:
        """Return the id of the row that was added to the table last, even if it is gone."""
        with self._mutex:
            rows = self.fetch("SELECT seq FROM sqlite_sequence WHERE name=?", table)
            last = int(rows[0][0]) if rows else 0
            return max(last, self._memory[-1].last) if self._memory and table == "inbox" else last

    def has_waiting(self, table: Literal["held", "inbox"], upto: int) -> bool:
        """Return whether the table has a trace with an id up to `upto`."""
        key = {"held": "id", "inbox": "seq"}[table]
        with self._mutex:
            if table == "inbox" and self._memory and self._memory[0].rows[0].seq <= upto:
                return True
        return bool(self.fetch(f"SELECT 1 FROM {table} WHERE {key} <= ? LIMIT 1", upto))

    def accept(
        self,
        arrivals: Sequence[TraceArrival],
        received: float,
        *,
        progress: SourceProgress | None = None,
        counts: dict[CounterKey, float] | None = None,
        count_duplicates: CounterKey | None = None,
        also: TransactionStatements | None = None,
        again: bool = False,
    ) -> AcceptedArrivals:
        """Store and queue the arrivals whose ids are new, in one transaction.

        `counts` are increments of stored counters, `count_duplicates` is one that is increased by
        the number of duplicates; `also` runs further statements of the transaction. A source that
        gives the arrivals `again`, from the stored `progress` on, leaves storing to the commit.

        Raises:
            QueueFull: Arrivals in memory must be committed before these can be stored.
        """
        fresh: list[bool] = []
        keys: list[bytes] = []
        with self._mutex:
            if again and progress is not None and also is None:
                joined = self._join_memory(
                    arrivals=arrivals,
                    received=received,
                    progress=progress,
                    counts=dict(counts or {}),
                    count_duplicates=count_duplicates,
                )
                if joined is not None:
                    return joined
                if self._memory:  # what they store comes first
                    raise QueueFull("traces wait in memory")
            known = self._in_memory(arrivals)
            if any(known):
                return self._accept_unknown(
                    arrivals=arrivals,
                    known=known,
                    received=received,
                    progress=progress,
                    counts=counts,
                    count_duplicates=count_duplicates,
                    also=also,
                )
            with self.transaction() as db:
                generation = self._generation
                clock = self._seen.copy()
                for arrival in arrivals:
                    if clock.rotate(arrival.timestamp):
                        fresh += _remember_keys(db, generation, keys)
                        keys = []
                        generation = 1 - generation
                        db.execute(f"DELETE FROM seen_{generation}")
                    keys.append(_trace_key(arrival.service, arrival.trace_id))
                fresh += _remember_keys(db, generation, keys)
                done = AcceptedArrivals(tuple(fresh))
                new = list(compress(arrivals, fresh))
                held = [arrival for arrival in new if arrival.held]
                queued = [arrival for arrival in new if not arrival.held] if held else new
                self.continue_queue(db)
                for table, rows in (("held", held), ("inbox", queued)):
                    if rows:
                        values = [(row.timestamp, received, row.body) for row in rows]
                        insert_rows(db, table, "timestamp, received, body", values)
                last = db.execute("SELECT last_insert_rowid()").fetchone()[0]
                increments = dict(counts or {})
                if count_duplicates and done.duplicates:
                    before = increments.get(count_duplicates, 0.0)
                    increments[count_duplicates] = before + done.duplicates
                add_counts(db, increments)
                if also is not None:
                    also(db)
                if progress:
                    _store_progress(db, progress)
                if (generation, clock) != (self._generation, self._seen):
                    seen = {"seen_start": clock.start, "seen_outside": clock.outside}
                    self._put_meta({"seen_generation": generation, **seen})
            # only after the commit: a step that failed has left no generation behind
            self._generation = generation
            self._seen = clock
            self._depth += len(queued)
            self._held += len(held)
            self._keep(queued, last - len(queued) + 1, received)
        return done

    def _in_memory(self, arrivals: Sequence[TraceArrival]) -> list[bool]:
        """Return of each arrival whether it waits in memory already."""
        keys = self._memory_keys
        return [bool(keys) and _trace_key(row.service, row.trace_id) in keys for row in arrivals]

    def _accept_unknown(
        self,
        arrivals: Sequence[TraceArrival],
        known: Sequence[bool],
        received: float,
        *,
        progress: SourceProgress | None,
        counts: dict[CounterKey, float] | None,
        count_duplicates: CounterKey | None,
        also: TransactionStatements | None,
    ) -> AcceptedArrivals:
        """Accept the arrivals that are not `known` from memory; the others are duplicates.

        Their keys are not stored before those that wait are: after a crash, these come again.
        """
        increments = dict(counts or {})
        if count_duplicates:
            increments[count_duplicates] = sum(known)
        rest = [arrival for arrival, is_known in zip(arrivals, known, strict=True) if not is_known]
        done = iter(
            self.accept(
                rest,
                received,
                progress=progress,
                counts=increments,
                count_duplicates=count_duplicates,
                also=also,
            ).fresh
        )
        fresh = tuple(not is_known and next(done) for is_known in known)
        return AcceptedArrivals(fresh)

    def _join_memory(
        self,
        arrivals: Sequence[TraceArrival],
        received: float,
        progress: SourceProgress,
        counts: dict[CounterKey, float],
        count_duplicates: CounterKey | None,
    ) -> AcceptedArrivals | None:
        """Queue arrivals in memory alone; None where they have to be stored.

        That is if some must be held, all are known, or a generation of keys begins.
        """
        clock = self._seen.copy()
        if any(clock.rotate(arrival.timestamp) for arrival in arrivals) or clock != self._seen:
            return None
        first = self.last_id("inbox") + 1
        if self.crowded or (self._kept and self._kept[-1].seq + 1 != first):
            return None
        keys = [_trace_key(arrival.service, arrival.trace_id) for arrival in arrivals]
        known = self._memory_keys | self._stored_keys(keys)
        fresh = []
        for key in keys:
            fresh.append(key not in known)
            known.add(key)
        new = list(compress(arrivals, fresh))
        if not new or any(arrival.held for arrival in new):
            return None
        done = AcceptedArrivals(tuple(fresh), stored=False)
        if count_duplicates and done.duplicates:
            counts[count_duplicates] = done.duplicates
        rows = _number_rows(new, first, received)
        new_keys = list(compress(keys, fresh))
        self._memory.append(_MemoryBatch(rows, new_keys, progress, counts))
        self._memory_keys.update(new_keys)
        self._kept.extend(rows)
        self._kept_bytes += sum(len(row.body) for row in rows)
        self._depth += len(rows)
        return done

    def _stored_keys(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return those of the keys that the file has."""
        marks = ", ".join("?" * len(keys))
        query = " UNION ALL ".join(
            f"SELECT key FROM seen_{generation} WHERE key IN ({marks})" for generation in (0, 1)
        )
        return {row[0] for row in self.fetch(query, *keys, *keys)}

    def continue_queue(self, db: sqlite3.Connection, upto: int | None = None) -> None:
        """Have rows that are inserted next follow `upto`, by default those in memory."""
        if upto is None:
            upto = self._memory[-1].last if self._memory else 0
        if upto:
            db.execute(
                "INSERT INTO sqlite_sequence SELECT 'inbox', 0"
                " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name='inbox')"
            )
            statement = "UPDATE sqlite_sequence SET seq=max(seq, ?) WHERE name='inbox'"
            db.execute(statement, (upto,))

    def _store_memory(self, db: sqlite3.Connection, upto: int) -> list[_MemoryBatch]:
        """Store what belongs to the batches in memory of which rows up to `upto` are done.

        Where some of a batch are not, their bodies are stored: the source has gone on.

        Returns:
            These batches.
        """
        batches = [batch for batch in self._memory if batch.rows[0].seq <= upto]
        for batch in batches:
            db.executemany(
                f"INSERT OR IGNORE INTO seen_{self._generation} VALUES(?)",
                [(key,) for key in batch.keys],
            )
            add_counts(db, batch.counts)
            _store_progress(db, batch.progress)
            left = [row for row in batch.rows if row.seq > upto]
            values = [(row.seq, row.timestamp, row.received, row.body) for row in left]
            insert_rows(db, "inbox", "seq, timestamp, received, body", values)
        if batches:
            self.continue_queue(db, upto)
        return batches

    def _keep(self, arrivals: Sequence[TraceArrival], first: int, received: float) -> None:
        """Keep decoded rows, the first of which has the id `first`, until they are taken."""
        if self.crowded or (self._kept and self._kept[-1].seq + 1 != first):
            return
        self._kept.extend(_number_rows(arrivals, first, received))
        self._kept_bytes += sum(len(row.body) for row in arrivals)

    def released(self, number: int) -> None:
        """Count `number` held traces as queued."""
        with self._mutex:
            self._depth += number
            self._held -= number

    def take(self, after: int, limit: int) -> list[QueuedTrace]:
        """Return the next queue entries with `seq > after`, oldest first; they stay queued."""
        query = (
            "SELECT seq, timestamp, received, body FROM inbox WHERE seq > ? AND seq < ?"
            " ORDER BY seq LIMIT ?"
        )
        with self._mutex:
            self._drop_kept(after)
            first = self._kept[0].seq if self._kept else 2**62
            rows = self.fetch(query, after, first, limit) if first > after + 1 else ()
            if rows or not self._kept:
                return [QueuedTrace(*row) for row in rows]
            # a commit of a part of a batch in memory would have to store the rest
            end = next((batch.last for batch in self._memory if batch.last >= first), first + limit)
            number = min(limit, len(self._kept), end - first + 1)
            return [self._take_kept() for _ in range(number)]

    def _drop_kept(self, upto: int) -> None:
        while self._kept and self._kept[0].seq <= upto:
            self._take_kept()

    def _take_kept(self) -> QueuedTrace:
        taken = self._kept.popleft()
        self._kept_bytes -= len(taken.body)
        return taken

    def commit(self, step: StateCommit) -> dict[CounterKey, float]:
        """Apply one step atomically; an exception means that nothing of it was applied.

        Returns:
            The counts that were stored with the arrivals that waited in memory.
        """
        # encoded before the transaction, for which senders wait
        buckets = [(tuple(key), data) for *key, data in step.buckets]
        counters = [((name, _labels_text(labels)), n) for (name, labels), n in step.counters]
        texts = {name: json.dumps(value) for name, value in step.meta.items()}
        meta = [item for item in texts.items() if self._saved_meta.get(item[0]) != item[1]]
        draws = list(map(_draw_row, step.draws))
        with self.transaction() as db:
            done = db.execute("DELETE FROM inbox WHERE seq <= ?", (step.upto,)).rowcount
            batches = self._store_memory(db, step.upto)
            _replace_rows(db, "buckets", ("service", "segment", "width", "start"), buckets)
            _replace_rows(db, "counters", ("name", "labels"), counters)
            db.executemany("INSERT OR REPLACE INTO evidence VALUES(?, ?, ?, ?)", step.evidence)
            db.executemany(
                "DELETE FROM evidence WHERE service=? AND trace_id=?", step.forget_evidence
            )
            db.executemany("DELETE FROM outbox WHERE id=?", [(id_,) for id_ in step.delivered])
            db.executemany(
                "INSERT OR IGNORE INTO outbox(id, key, body, created) VALUES(?, ?, ?, ?)",
                [(one.id, one.key, one.body, one.created) for one in step.outbox],
            )
            db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", meta)
            db.executemany("DELETE FROM meta WHERE name=?", [(name,) for name in step.forget_meta])
            insert_rows(db, "drawn", _DRAW_COLUMNS, draws)
            delete_ids(db, "drawn", step.finished)
            if step.also is not None:
                step.also(db)
        counts: dict[CounterKey, float] = {}
        with self._mutex:
            for batch in batches:
                self._memory.popleft()
                self._memory_keys.difference_update(batch.keys)
                done += sum(row.seq <= step.upto for row in batch.rows)
                for key, by in batch.counts.items():
                    counts[key] = counts.get(key, 0.0) + by
            self._saved_meta.update(meta)
            for name in step.forget_meta:
                self._saved_meta.pop(name, None)
            self._depth -= done
            self._drop_kept(step.upto)
        return counts

    def pending_draws(self, tier: Tier, after: int, limit: int) -> list[StoredDraw]:
        """Return the traces that wait for `tier` with `id > after`, oldest first; they stay."""
        query = f"SELECT id, {_DRAW_COLUMNS} FROM drawn WHERE tier=? AND id > ? ORDER BY id LIMIT ?"
        return [
            StoredDraw(id_, _parse_draw(*columns))
            for id_, *columns in self.fetch(query, tier, after, limit)
        ]

    def waiting(self) -> list[PendingDraws]:
        """Return how many traces wait for each tier, by service and promised pairs."""
        rows = self.fetch(
            "SELECT tier, service, pairs, count(*) FROM drawn GROUP BY tier, service, pairs"
        )
        return [
            PendingDraws(tier, service, _parse_pairs(pairs), n) for tier, service, pairs, n in rows
        ]

    def saved(self) -> SavedState:
        """Return everything a restart needs; a ValueError means that the content is corrupt."""
        with self._mutex:
            counters = [
                ((name, tuple((k, v) for k, v in json.loads(labels))), value)
                for name, labels, value in self.fetch("SELECT * FROM counters")
            ]
            return SavedState(
                buckets=self.fetch("SELECT service, segment, width, start, data FROM buckets"),
                counters=counters,
                meta=self._meta(),
                outbox=[OutboxItem(*row) for row in self.fetch(_OUTBOX)],
                evidence=self.fetch("SELECT service, trace_id FROM evidence"),
            )

    def evidence(self, service: str, trace_id: str) -> bytes | None:
        """Return the evidence of a trace as JSON, None if there is none."""
        rows = self.fetch(
            "SELECT body FROM evidence WHERE service=? AND trace_id=?", service, trace_id
        )
        return rows[0][0] if rows else None

    def position(self, source: str) -> int:
        """Return how far `source` was read, what waits in memory included; 0 for a new one."""
        with self._mutex:
            for batch in reversed(self._memory):
                if batch.progress.source == source:
                    return batch.progress.position
        rows = self.fetch("SELECT position FROM progress WHERE source=?", source)
        return int(rows[0][0]) if rows else 0

    def probe(self) -> None:
        """Write about as much as a small request brings and delete it; raises if the disk fails."""
        with self.transaction():
            # nobody reads this name, in case the process dies before the deletion
            self._put_meta({"probe": "0" * _PROBE_BYTES})
        with self.transaction() as db:
            db.execute("DELETE FROM meta WHERE name='probe'")

    def close(self) -> None:
        """Close the database and release the lock."""
        with self._mutex:
            self._db.close()
            self._lock_file.close()


def add_counts(db: sqlite3.Connection, counts: Mapping[CounterKey, float]) -> None:
    """Increase stored counters."""
    db.executemany(
        "INSERT INTO counters VALUES(?, ?, ?)"
        " ON CONFLICT DO UPDATE SET value = value + excluded.value",
        [(name, _labels_text(labels), by) for (name, labels), by in counts.items()],
    )


@lru_cache(maxsize=2_048)  # the same come again and again
def _labels_text(labels: Labels) -> str:
    return json.dumps(labels)


def insert_rows(
    db: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[object, ...]]
) -> None:
    """Insert rows into the comma-separated columns of a table."""
    marks = ", ".join("?" * (columns.count(",") + 1))
    db.executemany(f"INSERT INTO {table}({columns}) VALUES({marks})", rows)


def _store_progress(db: sqlite3.Connection, progress: SourceProgress) -> None:
    """Store how far a source was read."""
    position = (progress.source, progress.position)
    db.execute("INSERT OR REPLACE INTO progress VALUES(?, ?)", position)


def _number_rows(
    arrivals: Sequence[TraceArrival], first: int, received: float
) -> list[QueuedTrace]:
    """Return arrivals as rows of the queue, the first of which has the id `first`."""
    return [
        QueuedTrace(
            seq=seq, timestamp=row.timestamp, received=received, body=row.body, trace=row.trace
        )
        for seq, row in enumerate(arrivals, first)
    ]


def _remember_keys(db: sqlite3.Connection, generation: int, keys: Sequence[bytes]) -> list[bool]:
    """Add keys of traces to a generation; return of each whether neither generation had it."""
    insert = (
        f"INSERT OR IGNORE INTO seen_{generation} SELECT :key"
        f" WHERE NOT EXISTS (SELECT 1 FROM seen_{1 - generation} WHERE key=:key)"
    )
    rows = [{"key": key} for key in keys]
    if len(rows) > 1:
        # all at once tells only how many were new, which nearly always is enough
        db.execute("SAVEPOINT keys")
        added = db.executemany(insert, rows).rowcount
        if added < len(rows):
            db.execute("ROLLBACK TO keys")
        db.execute("RELEASE keys")
        if added == len(rows):
            return [True] * added
    return [bool(db.execute(insert, row).rowcount) for row in rows]


def delete_ids(db: sqlite3.Connection, table: str, ids: Iterable[int]) -> None:
    """Delete the rows of a table with these ids."""
    db.executemany(f"DELETE FROM {table} WHERE id=?", ((id_,) for id_ in ids))


def _replace_rows(
    db: sqlite3.Connection,
    table: str,
    keys: tuple[str, ...],
    rows: Sequence[tuple[tuple[object, ...], object]],
) -> None:
    """Replace rows of (key, value) in a table whose last column is the value; delete None."""
    marks = ", ".join("?" * (len(keys) + 1))
    db.executemany(
        f"INSERT OR REPLACE INTO {table} VALUES({marks})",
        [(*key, value) for key, value in rows if value is not None],
    )
    where = " AND ".join(f"{key}=?" for key in keys)
    db.executemany(
        f"DELETE FROM {table} WHERE {where}", [key for key, value in rows if value is None]
    )


def _trace_key(service: str, trace_id: str) -> bytes:
    # 128 bits: any two of 10^9 ids collide with probability 10^-20
    text = f"{len(service)}:{service}{trace_id}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()


def _parse_pairs(text: str) -> tuple[MetricScorer, ...]:
    return tuple((metric, scorer) for metric, scorer in json.loads(text))


def _draw_row(draw: TierDraw) -> tuple[object, ...]:
    pairs = json.dumps(draw.pairs)
    cheap = json.dumps(dict(draw.cheap))
    head = (draw.tier, draw.service, draw.timestamp, draw.probability)
    return (*head, pairs, draw.body, draw.stratum, cheap)


def _parse_draw(*columns: Any) -> TierDraw:
    tier, service, timestamp, probability, pairs, body, stratum, cheap = columns
    parsed = _parse_pairs(pairs)
    return TierDraw(
        tier=tier,
        service=service,
        timestamp=timestamp,
        probability=probability,
        pairs=parsed,
        body=body,
        stratum=stratum,
        cheap=json.loads(cheap),
    )
