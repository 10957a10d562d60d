"""Traces of yesterday as traces of now: other times, and other ids where that is asked for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.alerts.durations import parse_duration
from agent.ingest.native import Bad, Good, decode_one

__all__ = ["LAST", "SENT", "Moving", "parse_shift"]

SENT, LAST = "sent", "last"
MOST = 200 * 365 * 86_400  # seconds; a trace's time lies within 1970 and 2200


def parse_shift(text: str) -> str | float:
    """`SENT`, `LAST`, or seconds. Raises ValueError."""
    if text in (SENT, LAST):
        return text
    seconds = parse_duration(text.removeprefix("-"))
    if seconds > MOST:
        raise ValueError("at most 200 years")
    return -seconds if text.startswith("-") else seconds


@dataclass(frozen=True, slots=True)
class Moving:
    """`seconds` are added to each trace's time; None: it becomes the time of sending. `suffix` is
    put behind each trace id."""

    seconds: float | None = 0.0
    suffix: str = ""

    def __call__(self, item: Good, now: float, limit: int) -> Good | Bad:
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
        return decode_one(body, limit)

    def options(self) -> str:
        """What makes a later call move traces by the same, each with a space before it."""
        shift = suffix = ""
        if self.seconds is None:
            shift = f" --shift={SENT}"
        elif self.seconds:
            shift = f" --shift={self.seconds:.0f}s"
        if self.suffix:
            suffix = f" --id-suffix={shlex.quote(self.suffix)}"
        return shift + suffix
