"""Replay of a trace file as traffic: rate limit, time shift and progress."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ragmeter.core.durations import parse_duration
from ragmeter.core.pacing import Pace
from ragmeter.ingest.files import InputFile, ReadAhead
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace

SHIFT_TO_SENT = "sent"
SHIFT_TO_LAST = "last"
MAX_SHIFT_SECONDS = 200 * 365 * 86_400  # a trace's time lies between 1970 and 2200
# Seconds of delay that a replay makes up for. With none, each late wake-up would lower the rate;
# with more, an agent that was away for minutes would get a burst.
SLACK_SECONDS = 1.0
PROGRESS_SECONDS = 5.0  # between two lines of progress
MAX_NAMED = 20  # items named on the terminal, so that a wrong file does not fill it
_MAX_REASON_CHARS = 300


def parse_shift(text: str) -> str | float:
    """Return `SHIFT_TO_SENT`, `SHIFT_TO_LAST` or seconds. Raises ValueError."""
    if text in (SHIFT_TO_SENT, SHIFT_TO_LAST):
        return text
    seconds = parse_duration(text.removeprefix("-"))
    if seconds > MAX_SHIFT_SECONDS:
        raise ValueError("at most 200 years")
    return -seconds if text.startswith("-") else seconds


@dataclass(frozen=True, slots=True)
class TraceShift:
    """The changes that a replay makes to traces.

    Args:
        seconds: Seconds to add to the time of each trace; None sets it to the time of sending.
    """

    seconds: float | None = 0.0

    def __call__(self, item: DecodedTrace, now: float, limit: int) -> DecodedTrace | DecodeFailure:
        """Return the trace to send instead."""
        if self.seconds == 0:
            return item
        trace = item.trace
        if self.seconds is None:
            timestamp = datetime.fromtimestamp(now, UTC)
        else:
            timestamp = trace.timestamp + timedelta(seconds=self.seconds)
        moved = trace.model_copy(update={"timestamp": timestamp})
        body = moved.model_dump_json(exclude_none=True).encode()
        return decode_trace(body, limit)  # validated again: the time may be out of range


@dataclass(slots=True)
class ReplayState:
    """The progress of a replay.

    Args:
        sent: Traces that the target has stored.
        bad: Items that are not traces, and were not sent.
        position: Position in the file; all items before it are done with.
        finished: Whether the file was read to its end.
        known: Traces of `sent` that the agent reported as counted before.
        refused: Traces that the target rejected.
    """

    sent: int = 0
    bad: int = 0
    position: int = 0
    finished: bool = False
    known: int = 0
    refused: int = 0


class ReplayReporter:
    """Prints skipped items, and every few seconds the progress."""

    def __init__(
        self,
        source: InputFile,
        done: ReplayState,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say = say
        self._source = source
        self._done = done
        self._clock = clock
        self._started = self._reported = clock()
        self._named = 0

    def report_skipped(self, position: int, reason: str, outcome: str) -> None:
        """Report an item that ends at a position and was left out."""
        self._named += 1
        if self._named <= MAX_NAMED:
            self.say(
                f"{self._source.name}, before {position}: {reason[:_MAX_REASON_CHARS]}; {outcome}"
            )
        if self._named == MAX_NAMED:
            self.say("further ones are counted only")

    def report_progress(self) -> None:
        """Report the progress if it is time to."""
        now = self._clock()
        if now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        done = self._done
        size = self._source.size
        share = f", {100 * done.position / size:.0f} %" if size else ""
        self.say(f"{done.sent} sent, {done.sent / (now - self._started):.0f}/s{share}")


def read_traffic(
    source: InputFile,
    limit: int,
    done: ReplayState,
    reporter: ReplayReporter,
    *,
    pace: Pace,
    moving: TraceShift,
    wall: Callable[[], float] = time.time,
) -> Iterator[tuple[DecodedTrace, int] | None]:
    """Yield the traces to send now, with the position behind each.

    Yields None if no item comes for a while, so that an incomplete batch can be sent. Raises
    OSError if the file cannot be read.
    """
    reader = ReadAhead(source, limit)
    try:
        while True:
            try:
                entry = reader.get()
            except queue.Empty:
                yield None
                continue
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                return
            item, position = entry
            if isinstance(item, DecodedTrace):
                pace.wait()
                item = moving(item, wall(), limit)
            if isinstance(item, DecodeFailure):
                done.bad += 1
                parts = [f"{field}: {why}" if field else why for field, why in item.errors]
                reason = ": ".join(filter(None, (item.reason, "; ".join(parts))))
                reporter.report_skipped(position, reason, "not sent")
            else:
                yield item, position
    finally:
        reader.stop()


def latest_timestamp(source: InputFile, limit: int) -> float | None:
    """Return the latest time of the traces in a file, in Unix seconds. Raises OSError."""
    times = (
        item.trace.timestamp for item, _ in source.read(limit) if isinstance(item, DecodedTrace)
    )
    newest = max(times, default=None)
    return None if newest is None else newest.timestamp()
