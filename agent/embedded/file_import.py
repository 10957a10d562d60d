"""Import a file of traces or feedback into the running agent (`ragmeter run --replay`, `--feedback`)."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ragmeter.aggregate.feedback_join import OUTCOMES
from ragmeter.core.feedback import Feedback
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.intake import QueueFull, StateUnavailable
from ragmeter.ingest.feedback import read_feedback
from ragmeter.ingest.files import MAX_SHOWN, InputFile, Item, ReadAhead
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.store.rows import SourceProgress

_TRACE_BATCH = 256  # items made durable in one commit
_BATCH_BYTES = 16 * 2**20  # or so many bytes: 256 traces of the largest kind are 512 MiB
_LINGER_SECONDS = 1.0  # longest wait of a trace for others to be committed with
_STOP_SECONDS = 2.0  # longest time to hand over what a stream has given when a stop comes
_REMIND_SECONDS = 10.0  # how often the reason is said while nothing can be written


@dataclass
class ImportResult:
    """What a replay took in: items, how many of them were unreadable, whether an earlier run had
    read a part, and whether an unfinished last line was left to the next run.
    """

    items: int = 0
    bad: int = 0
    before: bool = False
    unfinished: bool = False
    empty: bool = False


def import_traces(
    instrument: EmbeddedAgent,
    path: Path,
    limit: int,
    *,
    progress: Callable[[int, int, int], None] = lambda items, bad, position: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda line: None,
) -> ImportResult:
    """Feed `path` from where the last run stopped, until its end or until `stopped`.

    `progress(items, bad, position)` is called after each batch. Waits while the queue is full or
    the state cannot be written, and tells `warn` why. Raises OSError for a file that cannot be
    read, after what could be, and `Unavailable` when the agent has died.
    """
    return _TraceImport(instrument, InputFile(path), progress, stopped, warn).run(limit)


class _TraceImport:
    def __init__(
        self,
        instrument: EmbeddedAgent,
        source: InputFile,
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
        self._done = ImportResult(empty=source.empty)

    def run(self, limit: int) -> ImportResult:
        start = 0
        name = self._source.identity
        if name is not None:
            start = self._instrument.position(name)
            self._written = self._instrument.dead_letters_from(name, start)
        self._done.before = start > 0
        reader = ReadAhead(self._source, limit, start, growing=True)
        try:
            self._take(reader)
        finally:
            left = reader.stop()
        if name is None and self._stopped():
            # what came out of a pipe is nowhere else; a file is simply read again
            self._batch += left
            until = time.monotonic() + _STOP_SECONDS
            self._push(lambda: time.monotonic() > until)
        self._done.unfinished = self._source.unfinished
        return self._done

    def _take(self, reader: ReadAhead) -> None:
        while not self._stopped():
            if self._instrument.fatal:
                raise StateUnavailable(self._instrument.fatal)
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
            self._bytes += len(item[0].body if isinstance(item[0], DecodedTrace) else item[0].raw)
            full = len(self._batch) >= _TRACE_BATCH or self._bytes >= _BATCH_BYTES
            if full or time.monotonic() - self._since >= _LINGER_SECONDS:
                self._push()

    def _push(self, given_up: Callable[[], bool] | None = None) -> None:
        """Make the batch durable, but keep it when a stop (or `given_up`) comes first."""
        if not self._batch:
            return
        position = self._batch[-1][1]
        name = self._source.identity
        mark = None if name is None else SourceProgress(name, position)
        while not (given_up or self._stopped)():
            try:
                self._instrument.accept(self._batch, "file", progress=mark, written=self._written)
            except QueueFull:
                time.sleep(0.02)
            except StateUnavailable as error:
                if self._instrument.fatal:
                    raise
                self._complain(str(error))
                time.sleep(0.5)
            else:
                self._warned = None
                self._done.items += len(self._batch)
                self._done.bad += sum(isinstance(item, DecodeFailure) for item, _ in self._batch)
                self._batch = []
                self._bytes = 0
                self._progress(self._done.items, self._done.bad, position)
                return

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if self._warned is None or now - self._warned >= _REMIND_SECONDS:
            self._warned = now
            self._warn(f"{self._source.name}: waiting: {why}")


_FEEDBACK_BATCH = 500  # items made durable in one commit


def import_feedback(
    instrument: EmbeddedAgent,
    path: Path,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> bool:
    """Hand over a file and wait until it is counted; whether anything could be read, or there was
    nothing to read. Reading it again changes nothing. Raises OSError, and `Unavailable` where the
    agent has died."""
    before = _count_outcomes(instrument)
    items = read_feedback(path)
    taken = bad = number = 0
    while not stopped() and (batch := list(islice(items, _FEEDBACK_BATCH))):
        for item in batch:
            number += 1
            if isinstance(item, DecodeFailure):
                bad += 1
                if bad <= MAX_SHOWN:
                    why = "; ".join(f"{field or 'item'}: {why}" for field, why in item.errors)
                    say(f"{path.name}: item {number}: {item.reason}: {why}")
        taken += _send_batch(instrument, batch, stopped)
    instrument.wait_feedback(stopped)
    after = _count_outcomes(instrument)
    parts = [f"{after[name] - before[name]:.0f} {name}" for name in after]
    found = [part for part in parts if not part.startswith("0 ")]
    rest = taken - sum(after[name] - before[name] for name in after)
    if rest > 0:
        found.append(f"{rest:.0f} waiting for their traces")
    if bad:
        found.append(f"{bad} unreadable")
    say(
        f"{path.name}: {taken + bad} items of feedback" + (f": {', '.join(found)}" if found else "")
    )
    return taken > 0 or bad == 0


def _send_batch(
    instrument: EmbeddedAgent, batch: list[Feedback | DecodeFailure], stopped: Callable[[], bool]
) -> int:
    while not stopped():
        try:
            return instrument.accept_feedback(batch, "file", live=False)
        except QueueFull:
            time.sleep(0.02)
        except StateUnavailable:
            if instrument.fatal:
                raise
            time.sleep(0.5)
    return 0


def _count_outcomes(instrument: EmbeddedAgent) -> dict[str, float]:
    with instrument.lock():
        counters = instrument.counters
        return {
            name: counters.get("ragmeter_feedback_total", (("outcome", name),)) for name in OUTCOMES
        }
