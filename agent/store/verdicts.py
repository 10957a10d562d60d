"""A persistent cache of judge verdicts in the state file.

A lost verdict costs money but never changes a number. So the cache has a connection of its own
whose commits do not wait for the disk, and a failure to write is only logged.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0

_MAX_BUFFERED = 64  # verdicts written at once: a transaction costs as much as some twenty rows
_FLUSH_SECONDS = 1.0
# Flushes between two trims by size and age. Meanwhile the bound on entries may be exceeded by some
# 4,000 verdicts of a few hundred bytes.
_TRIM_EVERY = 64


class SqliteVerdictStore:
    """A verdict store in a state file that is open already; safe to use from several threads.

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
