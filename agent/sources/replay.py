"""A file or stream into the running agent: read, accept, remember how far."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.ingest.native import Bad, Good
from agent.intake import QueueFull, Unavailable
from agent.pipeline import Instrument
from agent.sources.ahead import Reader
from agent.sources.files import Item, Source
from agent.store.rows import Progress

__all__ = ["Replayed", "replay"]

BATCH = 256  # items made durable in one commit
BATCH_BYTES = 16 * 2**20  # or so many bytes: 256 traces of the largest kind are 512 MiB
LINGER_SECONDS = 1.0  # longest wait of a trace for others to be committed with
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
        reader = Reader(self._source, limit, start, growing=True)
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

    def _take(self, reader: Reader) -> None:
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
