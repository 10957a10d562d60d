"""Import a file of traces or documents into the running agent (`run --replay`, `--feedback`)."""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ragmeter.core.counters import CounterKey
from ragmeter.core.errors import QueueFull, StateUnavailable
from ragmeter.core.label_bounds import excerpt
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.intake import count_failures
from ragmeter.ingest.files import MAX_SHOWN, InputFile, Item, ReadAhead
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.parts.contract import Document, DocumentKind
from ragmeter.store.rows import SourceProgress

_TRACE_BATCH = 512  # items made durable in one commit
_BATCH_BYTES = 16 * 2**20  # or so many bytes: 256 traces of the largest kind are 512 MiB
_LINGER_SECONDS = 1.0  # longest wait of a trace for others to be committed with
_STOP_SECONDS = 2.0  # longest time to commit what a pipe has given when a stop comes
_REMIND_SECONDS = 10.0  # between two warnings while the state cannot be written
_QUEUE_RETRY_SECONDS = 0.02
_STATE_RETRY_SECONDS = 0.5
_DOCUMENT_BATCH = 500  # items made durable in one commit
_REASON_CHARS = 200  # of the reason for which an item cannot be read


@dataclass
class ImportResult:
    """The result of the import of a file of traces."""

    items: int = 0
    bad: int = 0  # of the items: could not be decoded
    first_failure: str = ""  # why the first of these could not
    before: bool = False  # an earlier run has imported a part
    unfinished: bool = False  # an unfinished last line was left to the next run
    empty: bool = False


def import_traces(
    agent: EmbeddedAgent,
    path: Path,
    limit: int,
    *,
    progress: Callable[[int, int], None] = lambda items, position: None,
    stopped: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda line: None,
) -> ImportResult:
    """Import a file from where the last run stopped, until its end or until `stopped`.

    It waits while the queue is full or the state cannot be written, and tells `warn` why. A trace
    has at most `limit` bytes. `progress` gets items and position after each batch.

    Raises:
        OSError: The file cannot be read; what came before the error is imported.
        StateUnavailable: The agent has died.
    """
    importing = _TraceImport(
        _agent=agent,
        _source=InputFile(path),
        _progress=progress,
        _stopped=stopped,
        _warn=warn,
    )
    return importing.run(limit)


@dataclass(eq=False)
class _TraceImport:
    _agent: EmbeddedAgent
    _source: InputFile
    _progress: Callable[[int, int], None]
    _stopped: Callable[[], bool]
    _warn: Callable[[str], None]
    _warned_at: float | None = field(default=None, init=False)
    _written: set[int] = field(default_factory=set, init=False)
    _batch: list[Item] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)  # when the first item of the batch came

    def __post_init__(self) -> None:
        self._result = ImportResult(empty=self._source.empty)

    def run(self, limit: int) -> ImportResult:
        start = 0
        name = self._source.identity
        if name is not None:
            start = self._agent.position(name)
            self._written = self._agent.dead_letters_from(name, start)
        self._result.before = start > 0
        reader = ReadAhead(self._source, limit, start, growing=True)
        try:
            self._import(reader)
        finally:
            rest = reader.stop()
        if name is None and self._stopped():
            # the data of a pipe is nowhere else; a file is simply read again
            self._batch += rest
            until = time.monotonic() + _STOP_SECONDS
            self._push(lambda: time.monotonic() > until)
        self._result.unfinished = self._source.unfinished
        return self._result

    def _import(self, reader: ReadAhead) -> None:
        while not self._stopped():
            try:
                item = reader.get()
            except queue.Empty:
                self._push(self._stopped)
                continue
            if item is None or isinstance(item, Exception):
                self._push(self._stopped)
                if item is not None:
                    raise item
                return
            if not self._batch:
                self._since = time.monotonic()
            self._batch.append(item)
            self._bytes += len(item[0].body if isinstance(item[0], DecodedTrace) else item[0].raw)
            full = len(self._batch) >= _TRACE_BATCH or self._bytes >= _BATCH_BYTES
            if full or time.monotonic() - self._since >= _LINGER_SECONDS:
                self._push(self._stopped)

    def _push(self, given_up: Callable[[], bool]) -> None:
        """Make the batch durable; it remains if `given_up` returns True first."""
        if self._agent.fatal:
            raise StateUnavailable(self._agent.fatal)
        if not self._batch:
            return
        position = self._batch[-1][1]
        name = self._source.identity
        progress = None if name is None else SourceProgress(name, position)
        while not given_up():
            try:
                self._agent.accept(self._batch, "file", progress=progress, written=self._written)
            except QueueFull:
                time.sleep(_QUEUE_RETRY_SECONDS)
            except StateUnavailable as error:
                if self._agent.fatal:
                    raise
                self._remind(str(error))
                time.sleep(_STATE_RETRY_SECONDS)
            else:
                self._warned_at = None
                self._result.items += len(self._batch)
                failures = [item for item, _ in self._batch if isinstance(item, DecodeFailure)]
                self._result.bad += len(failures)
                if failures and not self._result.first_failure:
                    self._result.first_failure = excerpt(failures[0].describe(), _REASON_CHARS)
                self._batch = []
                self._bytes = 0
                self._progress(self._result.items, position)
                return

    def _remind(self, why: str) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= _REMIND_SECONDS:
            self._warned_at = now
            self._warn(f"{self._source.name}: waiting: {why}")


def import_documents(
    agent: EmbeddedAgent,
    path: Path,
    part: str,
    kind: DocumentKind,
    *,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> bool:
    """Import a file of documents of a part, which recognises those that it has counted.

    Returns:
        Whether some document could be decoded, or there was none.

    Raises:
        OSError: The file cannot be read.
        StateUnavailable: The agent has died.
    """
    if kind.read_file is None:
        raise ValueError(f"the part {part} reads no files")
    items = kind.read_file(path)
    outcomes: Counter[str] = Counter()
    bad = number = 0
    while not stopped() and (batch := list(islice(items, _DOCUMENT_BATCH))):
        good: list[Document] = []
        for item in batch:
            number += 1
            if not isinstance(item, DecodeFailure):
                good.append(item)
                continue
            bad += 1
            if bad <= MAX_SHOWN:
                say(f"{path.name}: item {number}: {item.describe()}")
        sent = _send_batch(
            agent=agent,
            part=part,
            documents=good,
            counts=count_failures(batch),
            stopped=stopped,
        )
        outcomes.update(sent)
    taken = outcomes.total()
    if bad:
        outcomes["unreadable"] = bad
    counts = [f"{count} {name}" for name, count in outcomes.items()]
    what = f"{path.name}: {taken + bad} items"
    say(f"{what}: {', '.join(counts)}" if counts else what)
    return taken > 0 or bad == 0


def _send_batch(
    agent: EmbeddedAgent,
    part: str,
    documents: list[Document],
    counts: Mapping[CounterKey, float],
    stopped: Callable[[], bool],
) -> list[str]:
    while not stopped():
        try:
            return agent.receive(part, documents, "file", live=False, counts=counts)
        except StateUnavailable:
            if agent.fatal:
                raise
            time.sleep(_STATE_RETRY_SECONDS)
    return []
