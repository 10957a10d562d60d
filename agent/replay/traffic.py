"""A file as traffic, wherever it is sent: read, paced, moved in time, and how far that has come."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.ingest.native import Bad, Good
from agent.replay.moving import Moving
from agent.replay.pace import Pace
from agent.sources.ahead import Reader
from agent.sources.files import STDIN, Source

__all__ = ["Replayed", "Telling", "latest", "resume_hint", "traffic"]

SAY_SECONDS = 5.0  # between two lines of progress
MAX_NAMED = 20  # items named on the terminal: a file of anything else must not fill it
MAX_WHY = 300  # characters of a reason


@dataclass(slots=True)
class Replayed:
    """`position`: everything before it is delivered, or cannot be. Items come in order.

    `sent` traces are durable where they were sent to. Of these the agent has known `known`, as far
    as it says so. `bad` items were not sent, `refused` ones were not taken.
    """

    sent: int = 0
    bad: int = 0
    position: int = 0
    finished: bool = False
    known: int = 0
    refused: int = 0


class Telling:
    """What is said on the way: items that are left out, and every few seconds how far it is."""

    def __init__(
        self,
        source: Source,
        done: Replayed,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say, self._source, self._done, self._clock = say, source, done, clock
        self._began = self._said = clock()
        self._named = 0

    def left_out(self, position: int, reason: str, outcome: str) -> None:
        self._named += 1
        if self._named <= MAX_NAMED:
            self.say(f"{self._source.name}, before {position}: {reason[:MAX_WHY]}; {outcome}")
        if self._named == MAX_NAMED:
            self.say("further ones are only counted")

    def progress(self) -> None:
        now = self._clock()
        if now - self._said < SAY_SECONDS:
            return
        self._said = now
        done, size = self._done, self._source.size
        share = f", {100 * done.position / size:.0f} %" if size else ""
        # a process that is killed says nothing more: its last line does
        at = f", at {done.position}" if self._source.identity is not None else ""
        self.say(f"{done.sent} sent, {done.sent / (now - self._began):.0f}/s{share}{at}")


def traffic(
    source: Source,
    limit: int,
    done: Replayed,
    telling: Telling,
    *,
    pace: Pace,
    moving: Moving,
    wall: Callable[[], float] = time.time,
) -> Iterator[tuple[Good, int] | None]:
    """Traces to send now, from `done.position` on, with the position behind each. None: nothing
    comes for a while, so what waits for company should go. Raises OSError.
    """
    reader = Reader(source, limit, done.position)
    try:
        while True:
            try:
                found = reader.get()
            except queue.Empty:
                yield None
                continue
            if isinstance(found, Exception):
                raise found
            if found is None:
                return
            item, position = found
            if isinstance(item, Good):
                pace.wait()
                item = moving(item, wall(), limit)
            if isinstance(item, Bad):
                done.bad += 1
                telling.left_out(position, _why(item), "not sent")
            else:
                yield item, position
    finally:
        reader.stop()


def _why(item: Bad) -> str:
    parts = [f"{field}: {why}" if field else why for field, why in item.errors]
    return ": ".join(filter(None, (item.reason, "; ".join(parts))))


def latest(source: Source, limit: int) -> float | None:
    """The latest time of a file's traces, in Unix seconds. Raises OSError."""
    found = (item.trace.timestamp for item, _ in source.read(limit) if isinstance(item, Good))
    newest = max(found, default=None)
    return None if newest is None else newest.timestamp()


def resume_hint(path: Path, done: Replayed, moving: Moving) -> str:
    """What to say where a replay ended early."""
    if path == STDIN:
        return f"{done.sent} were sent"
    return f"{done.sent} were sent; --start {done.position}{moving.options()} goes on behind them"
