"""Replay of a trace file as traffic: reading, rate limit, time shift and progress."""

from __future__ import annotations

import queue
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ragmeter.core.clocks import parse_duration
from ragmeter.core.pacing import Pace
from ragmeter.ingest.files import STDIN, InputFile, ReadAhead
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace

SHIFT_TO_SENT, SHIFT_TO_LAST = "sent", "last"
MAX_SHIFT_SECONDS = 200 * 365 * 86_400  # seconds; a trace's time lies within 1970 and 2200


def parse_shift(text: str) -> str | float:
    """`SENT`, `LAST`, or seconds. Raises ValueError."""
    if text in (SHIFT_TO_SENT, SHIFT_TO_LAST):
        return text
    seconds = parse_duration(text.removeprefix("-"))
    if seconds > MAX_SHIFT_SECONDS:
        raise ValueError("at most 200 years")
    return -seconds if text.startswith("-") else seconds


@dataclass(frozen=True, slots=True)
class TraceShift:
    """`seconds` are added to each trace's time; None: it becomes the time of sending. `suffix` is
    put behind each trace id."""

    seconds: float | None = 0.0
    suffix: str = ""

    def __call__(self, item: DecodedTrace, now: float, limit: int) -> DecodedTrace | DecodeFailure:
        """The trace to send instead. `now` in Unix seconds; `limit` bounds its bytes."""
        if self.seconds == 0 and not self.suffix:
            return item
        trace = item.trace
        if self.seconds is None:
            timestamp = datetime.fromtimestamp(now, UTC)
        else:
            timestamp = trace.timestamp + timedelta(seconds=self.seconds)
        changes = {"timestamp": timestamp, "trace_id": trace.trace_id + self.suffix}
        body = trace.model_copy(update=changes).model_dump_json(exclude_none=True).encode()
        # read again: an id may be too long now, a time out of the calendar
        return decode_trace(body, limit)

    def command_options(self) -> str:
        """What makes a later call move traces by the same, each with a space before it."""
        shift = suffix = ""
        if self.seconds is None:
            shift = f" --shift={SHIFT_TO_SENT}"
        elif self.seconds:
            shift = f" --shift={self.seconds:.0f}s"
        if self.suffix:
            suffix = f" --id-suffix={shlex.quote(self.suffix)}"
        return shift + suffix


# Seconds of delay that a replay makes up for. Without any, each late wake-up would lower the rate;
# with more, an agent that was away for minutes would be met by a burst.
SLACK_SECONDS = 1.0

PROGRESS_SECONDS = 5.0  # between two lines of progress
MAX_NAMED = 20  # items named on the terminal: a file of anything else must not fill it
_MAX_REASON_CHARS = 300  # characters of a reason


@dataclass(slots=True)
class ReplayState:
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


class ReplayReporter:
    """What is said on the way: items that are left out, and every few seconds how far it is."""

    def __init__(
        self,
        source: InputFile,
        done: ReplayState,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say, self._source, self._done, self._clock = say, source, done, clock
        self._began = self._said = clock()
        self._named = 0

    def report_skipped(self, position: int, reason: str, outcome: str) -> None:
        self._named += 1
        if self._named <= MAX_NAMED:
            self.say(
                f"{self._source.name}, before {position}: {reason[:_MAX_REASON_CHARS]}; {outcome}"
            )
        if self._named == MAX_NAMED:
            self.say("further ones are only counted")

    def report_progress(self) -> None:
        now = self._clock()
        if now - self._said < PROGRESS_SECONDS:
            return
        self._said = now
        done, size = self._done, self._source.size
        share = f", {100 * done.position / size:.0f} %" if size else ""
        # a process that is killed says nothing more: its last line does
        at = f", at {done.position}" if self._source.identity is not None else ""
        self.say(f"{done.sent} sent, {done.sent / (now - self._began):.0f}/s{share}{at}")


def read_traffic(
    source: InputFile,
    limit: int,
    done: ReplayState,
    telling: ReplayReporter,
    *,
    pace: Pace,
    moving: TraceShift,
    wall: Callable[[], float] = time.time,
) -> Iterator[tuple[DecodedTrace, int] | None]:
    """Traces to send now, from `done.position` on, with the position behind each. None: nothing
    comes for a while, so what waits for company should go. Raises OSError.
    """
    reader = ReadAhead(source, limit, done.position)
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
            if isinstance(item, DecodedTrace):
                pace.wait()
                item = moving(item, wall(), limit)
            if isinstance(item, DecodeFailure):
                done.bad += 1
                telling.report_skipped(position, _rejection_reason(item), "not sent")
            else:
                yield item, position
    finally:
        reader.stop()


def _rejection_reason(item: DecodeFailure) -> str:
    parts = [f"{field}: {why}" if field else why for field, why in item.errors]
    return ": ".join(filter(None, (item.reason, "; ".join(parts))))


def latest_timestamp(source: InputFile, limit: int) -> float | None:
    """The latest time of a file's traces, in Unix seconds. Raises OSError."""
    found = (
        item.trace.timestamp for item, _ in source.read(limit) if isinstance(item, DecodedTrace)
    )
    newest = max(found, default=None)
    return None if newest is None else newest.timestamp()


def resume_hint(path: Path, done: ReplayState, moving: TraceShift) -> str:
    """What to say where a replay ended early."""
    if path == STDIN:
        return f"{done.sent} were sent"
    return f"{done.sent} were sent; --start {done.position}{moving.command_options()} goes on behind them"
