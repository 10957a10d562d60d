"""What comes of decoding one body."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agent.ingest.otlp.limits import Limits, Room
from agent.ingest.spans import LogEvent, Span

__all__ = ["Account", "Decoded", "Rejected", "Undecodable"]


class Undecodable(Exception):
    """Nothing of a body could be read. `reason` is a short code, the text says what is wrong.

    `too_large` is a body that holds more than one may (413), anything else is broken (400).
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason

    @property
    def too_large(self) -> bool:
        return self.reason == "too_large"


class Rejected(Exception):
    """One span or log record that cannot be read; the text is the reason's code."""


@dataclass(slots=True)
class Decoded:
    """`spans` of a trace request, `events` of a log request. `rejected` are spans or log records
    that could not be read; `ignored` log records are in order and carry no content of a span."""

    spans: list[Span] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    rejected: int = 0
    ignored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def reject(self, reason: str, count: int = 1) -> None:
        self.rejected += count
        self.reasons[reason] += count

    @property
    def message(self) -> str:
        """What was rejected, for the sender; empty where nothing was."""
        return ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())


class Account:
    """The values that a request may still hold, handed out one span at a time."""

    __slots__ = ("left", "limits", "records")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.values
        self.records = 0

    def refusal(self) -> str:
        """Why one more span or log record is not read, "" where it is. Called once for each."""
        self.records += 1
        if self.records > self.limits.spans:
            return "too_many_spans"
        return "" if self.left > 0 else "too_many_values"

    def room(self) -> Room:
        return Room(min(self.left, self.limits.span_values))

    def close(self, room: Room) -> None:
        """What was taken from `room` is gone from the request's account."""
        self.left -= room.given - room.left
