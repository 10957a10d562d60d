"""A judge with a cache: stored verdicts, and one call for equal questions at the same time.

A key is a hash of the fingerprint that the answer carries, of the endpoint, and of the rendered
question with its schema. Stored verdicts hold until a reply begins a new series
(`ragmeter.scorers.llm.served_model`), which makes all of them misses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ragmeter.core.single_flight import SingleFlight
from ragmeter.core.tiers import ScoringCost
from ragmeter.reasons import Reason
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict

log = logging.getLogger(__name__)

T = TypeVar("T")

DAY_SECONDS = 86_400.0

_MAX_BUFFERED = 64  # verdicts written at once: a transaction costs as much as some twenty rows
_FLUSH_SECONDS = 1.0
# Flushes between two trims by size and age. Meanwhile the bound on entries may be exceeded by some
# 4,000 verdicts of a few hundred bytes.
_TRIM_EVERY = 64


# A question that comes again comes within a month; older verdicts only take room.
VERDICT_DAYS = 30.0


class MemoryVerdictStore(dict[bytes, tuple[str, bytes]]):
    """A store in memory, for one run; the oldest of more than `entries` verdicts goes first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    def put(self, key: bytes, fingerprint: str, body: bytes, now: float) -> None:
        """Store a verdict."""
        self.pop(key, None)  # a dict keeps the order of first insertion
        self[key] = fingerprint, body
        while len(self) > self._entries:
            del self[next(iter(self))]


class SqliteVerdictStore:
    """A verdict store in a state file that is open already; safe to use from several threads.

    A lost verdict costs money but never changes a number. So the store has a connection of its own
    whose commits do not wait for the disk, and a failure to write is only logged.

    Args:
        entries: Most verdicts; 0 stores none.
        days: Longest age of a verdict.
    """

    def __init__(
        self, path: Path, entries: int, days: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._entries = entries
        self._seconds = days * DAY_SECONDS
        self._clock = clock
        self._mutex = threading.Lock()
        self._waiting: dict[bytes, tuple[str, bytes, float]] = {}
        self._written = clock()
        self._flushes = 0
        self._path = path
        # a thread, as a commit of the worker may block the file, and so the judge's event loop
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ragmeter-verdicts")
        self._writing: Future[None] | None = None

    @cached_property
    def _reader(self) -> sqlite3.Connection:
        # opened at first use: by then a broken state file has been moved aside
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    @cached_property
    def _db(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        # With `normal`, commits do not wait for the disk but checkpoints do. A checkpoint also
        # writes the worker's pages to the file; unsynced, they could be lost in a power cut.
        connection.execute("PRAGMA synchronous=normal")
        connection.execute("PRAGMA busy_timeout=5000")
        return connection

    def get(self, key: bytes) -> tuple[str, bytes] | None:
        """Return (fingerprint, body), None if there is no verdict or it is too old."""
        with self._mutex:
            row = self._waiting.get(key)
            if row is None:
                try:
                    row = self._reader.execute(
                        "SELECT fingerprint, body, at FROM verdicts WHERE key=?", (key,)
                    ).fetchone()
                except sqlite3.Error as error:
                    log.warning(
                        "the cache of verdicts cannot be read, asking the judge instead: %s", error
                    )
        if row is None or self._clock() - row[2] > self._seconds:
            return None
        return row[0], row[1]

    def put(self, key: bytes, fingerprint: str, body: bytes, now: float) -> None:
        """Store a verdict soon."""
        if self._entries == 0:
            return
        with self._mutex:
            self._waiting[key] = (fingerprint, body, now)
            due = now - self._written >= _FLUSH_SECONDS or now < self._written
            idle = self._writing is None or self._writing.done()
            if idle and (due or len(self._waiting) >= _MAX_BUFFERED):
                self._written = now
                self._writing = self._writer.submit(self._flush, now)

    def close(self) -> None:
        """Write the waiting verdicts and close the connections."""
        self._writer.shutdown()
        if self._waiting:
            self._flush(self._clock())
        for name in ("_reader", "_db"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def _flush(self, now: float) -> None:
        with self._mutex:
            rows = dict(self._waiting)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(
                    "INSERT OR REPLACE INTO verdicts VALUES(?, ?, ?, ?)",
                    [(key, *row) for key, row in rows.items()],
                )
                if self._flushes % _TRIM_EVERY == 0:
                    self._trim(now)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.rollback()
                raise
        except sqlite3.Error as error:
            log.warning("%d verdicts cannot be written to the cache: %s", len(rows), error)
        self._flushes += 1
        with self._mutex:
            for key, row in rows.items():
                if self._waiting.get(key) is row:
                    del self._waiting[key]

    def _trim(self, now: float) -> None:
        self._db.execute("DELETE FROM verdicts WHERE at < ?", (now - self._seconds,))
        self._db.execute(
            "DELETE FROM verdicts WHERE key IN"
            " (SELECT key FROM verdicts ORDER BY at DESC LIMIT -1 OFFSET ?)",
            (self._entries,),
        )


# Stores of verdicts, bounded in number and age.
VerdictStore = MemoryVerdictStore | SqliteVerdictStore


class CachedJudge:
    """Answers from a store, else asks the judge once for equal questions at the same time.

    Probes and second opinions ask the judge itself. An error of the store reaches the caller: it
    is no failure of the judge.

    Args:
        count: Called for each answer with its source: `kept`, `shared` or `asked`.
        keeps: Whether the answer to a question may be stored.
    """

    def __init__(
        self,
        inner: JudgeClient,
        store: VerdictStore,
        *,
        clock: Callable[[], float] = time.time,
        count: Callable[[str], None] = lambda source: None,
        keeps: Callable[[JudgeQuestion[Any]], bool] = lambda question: True,
    ) -> None:
        self._keeps = keeps
        self._inner = inner
        self._store = store
        self._clock = clock
        self._flights: SingleFlight[JudgeVerdict[Any]] = SingleFlight()
        self._count = count

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """Return the verdict, from the store or the judge.

        Raises:
            JudgeFailed: There is no verdict.
        """
        schema = json.dumps(question.schema, sort_keys=True)
        content = _digest(
            self._inner.endpoint, question.prompt_hash, question.system, question.user, schema
        )
        fingerprint = self._inner.fingerprint(question.prompt_hash)
        key = _key(fingerprint or "", content)
        stored = self._read_stored(key, question) if fingerprint is not None else None
        if stored is not None:
            self._count("kept")
            cost.use(self._inner.name).cached += 1
            return stored

        async def call(cost: ScoringCost) -> JudgeVerdict[Any]:
            verdict = await self._inner.ask(question, cost)
            body = json.dumps(verdict.data, separators=(",", ":")).encode("ascii")
            if self._keeps(question):
                key = _key(verdict.fingerprint, content)
                self._store.put(key, verdict.fingerprint, body, self._clock())
            return verdict

        verdict, joined = await self._flights.run(key, call, cost)
        self._count("shared" if joined else "asked")
        if not joined:
            return verdict
        cost.use(self._inner.name).cached += 1
        try:
            # read again for each caller: values may be mutable
            value = question.read(verdict.data)
        except ValueError:
            raise JudgeFailed(Reason.UNPARSABLE) from None
        return JudgeVerdict(value, verdict.fingerprint, verdict.data, cached=True)

    def _read_stored(self, key: bytes, question: JudgeQuestion[T]) -> JudgeVerdict[T] | None:
        stored = self._store.get(key)
        if stored is None:
            return None
        fingerprint, body = stored
        try:
            data = json.loads(body)
            return JudgeVerdict(question.read(data), fingerprint, data, cached=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # of another version of the reader, or damaged


def has_closed_schema(question: JudgeQuestion[Any]) -> bool:
    """Return whether all answers are labels and numbers, and quote no text of a trace."""
    return _is_closed_schema(question.schema)


def _is_closed_schema(schema: object) -> bool:
    if isinstance(schema, Mapping):
        open_text = schema.get("type") == "string" and "enum" not in schema
        return not open_text and all(map(_is_closed_schema, schema.values()))
    return not isinstance(schema, list) or all(map(_is_closed_schema, schema))


def _key(fingerprint: str, content: bytes) -> bytes:
    return hashlib.sha256(fingerprint.encode() + b"\0" + content).digest()


def _digest(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # or the end of one text could be the start of the next
        digest.update(data)
    return digest.digest()
