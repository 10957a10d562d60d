"""A file or stream into the running agent: read, accept, remember how far."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.ingest.native import Bad, Good
from agent.intake import QueueFull, Unavailable
from agent.pipeline import Instrument
from agent.sources.files import Item, Source
from agent.store.rows import Progress

__all__ = ["Replayed", "replay"]

BATCH = 256  # items made durable in one commit
BATCH_BYTES = 16 * 2**20  # or so many bytes: 256 traces of the largest kind are 512 MiB
AHEAD = 64  # items read ahead of the commit, enough to keep both busy
LINGER_SECONDS = 1.0  # longest wait of a trace for others to be committed with
POLL_SECONDS = 0.2  # how soon a silent stream is left alone after a stop
STOP_SECONDS = 2.0  # longest time to hand over what a stream has given when a stop comes
REMIND_SECONDS = 10.0  # how often the reason is said while nothing can be written


@dataclass
class Replayed:
    """What a replay took in: items, how many of them were unreadable, whether an earlier run had
    read a part, and whether an unfinished last line was left to the next run.
    """

    items: int = 0
    bad: int = 0
    before: bool = False
    unfinished: bool = False
    empty: bool = False


class _Reader:
    """Reads in a thread of its own: a stream may stay silent for ever, and a stop must not wait.

    The thread ends with the reading, after `stop`, or else with the process.
    """

    def __init__(self, source: Source, limit: int, start: int) -> None:
        self._items = source.read(limit, start, growing=True)
        self._queue: queue.Queue[Item | Exception | None] = queue.Queue(AHEAD)
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="ragmeter-reader", daemon=True).start()

    def _read(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
            self._put(None)
        except Exception as error:  # for the thread that asked for it
            self._put(error)

    def _put(self, item: Item | Exception | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
                return True
            except queue.Full:
                pass
        return False

    def get(self) -> Item | Exception | None:
        """The next item, the error that ended the reading, or None at the end.

        Raises `queue.Empty` when nothing came for a while.
        """
        return self._queue.get(timeout=POLL_SECONDS)

    def stop(self) -> list[Item]:
        """End the thread; returns what it has read and nobody took."""
        self._stopped.set()
        left: list[Item] = []
        with contextlib.suppress(queue.Empty):
            while isinstance(item := self._queue.get_nowait(), tuple):
                left.append(item)
        return left


def replay(
    instrument: Instrument,
    path: Path,
    limit: int,
    *,
    progress: Callable[[int, int, int], None] = lambda items, bad, position: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda line: None,
) -> Replayed:
    """Feed `path` from where the last run stopped, until its end or until `stopped`.

    `progress(items, bad, position)` is called after each batch. Waits while the queue is full or
    the state cannot be written, and tells `warn` why. Raises OSError for a file that cannot be
    read, after what could be, and `Unavailable` when the agent has died.
    """
    return _Replay(instrument, Source(path), progress, stopped, warn).run(limit)


class _Replay:
    def __init__(
        self,
        instrument: Instrument,
        source: Source,
        progress: Callable[[int, int, int], None],
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._instrument = instrument
        self._source = source
        self._progress = progress
        self._stopped = stopped
        self._warn = warn
        self._warned: float | None = None
        self._written: set[int] = set()
        self._batch: list[Item] = []
        self._bytes = 0
        self._since = 0.0  # when the first item of the batch came
        self._done = Replayed(empty=source.empty)

    def run(self, limit: int) -> Replayed:
        start = 0
        name = self._source.identity
        if name is not None:
            start = self._instrument.position(name)
            self._written = self._instrument.dead_letters_from(name, start)
        self._done.before = start > 0
        reader = _Reader(self._source, limit, start)
        try:
            self._take(reader)
        finally:
            left = reader.stop()
        if name is None and self._stopped():
            # what came out of a pipe is nowhere else; a file is simply read again
            self._batch += left
            until = time.monotonic() + STOP_SECONDS
            self._push(lambda: time.monotonic() > until)
        self._done.unfinished = self._source.unfinished
        return self._done

    def _take(self, reader: _Reader) -> None:
        while not self._stopped():
            if self._instrument.fatal:
                raise Unavailable(self._instrument.fatal)
            try:
                item = reader.get()
            except queue.Empty:
                self._push()
                continue
            if item is None or isinstance(item, Exception):
                self._push()
                if item is not None:
                    raise item
                return
            if not self._batch:
                self._since = time.monotonic()
            self._batch.append(item)
            self._bytes += len(item[0].body if isinstance(item[0], Good) else item[0].raw)
            full = len(self._batch) >= BATCH or self._bytes >= BATCH_BYTES
            if full or time.monotonic() - self._since >= LINGER_SECONDS:
                self._push()

    def _push(self, given_up: Callable[[], bool] | None = None) -> None:
        """Make the batch durable, but keep it when a stop (or `given_up`) comes first."""
        if not self._batch:
            return
        position = self._batch[-1][1]
        name = self._source.identity
        mark = None if name is None else Progress(name, position)
        while not (given_up or self._stopped)():
            try:
                self._instrument.accept(self._batch, "file", progress=mark, written=self._written)
            except QueueFull:
                time.sleep(0.02)
            except Unavailable as error:
                if self._instrument.fatal:
                    raise
                self._complain(str(error))
                time.sleep(0.5)
            else:
                self._warned = None
                self._done.items += len(self._batch)
                self._done.bad += sum(isinstance(item, Bad) for item, _ in self._batch)
                self._batch = []
                self._bytes = 0
                self._progress(self._done.items, self._done.bad, position)
                return

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if self._warned is None or now - self._warned >= REMIND_SECONDS:
            self._warned = now
            self._warn(f"{self._source.name}: waiting: {why}")
