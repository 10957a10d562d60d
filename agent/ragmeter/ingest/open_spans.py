"""Stored spans of traces that are not complete: what any store of them keeps and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ragmeter.core.counters import CounterKey
from ragmeter.ingest.assembler import RestoredTrace


@dataclass(frozen=True, slots=True)
class OpenSpanRow:
    """The spans of one trace in one request.

    Args:
        trace: The OpenTelemetry trace id.
        root: Whether the root span is among them.
        size: Bytes as the assembler counts them.
        keys: Keys of the spans, eight bytes each.
    """

    trace: bytes
    arrived: float
    root: bool
    size: int
    keys: Sequence[bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class OpenSpanChanges:
    """The closing of traces.

    Args:
        closed: (trace id, time) of traces whose spans are deleted and whose ids are remembered.
        forgotten: Ids of closed traces to forget.
    """

    closed: Sequence[tuple[bytes, float]]
    forgotten: Sequence[bytes] = ()


class OpenSpanStore(Protocol):
    """Stored spans of open traces, as `ragmeter.ingest.open_traces` writes and restores them."""

    def add(self, rows: Iterable[OpenSpanRow], counts: Mapping[CounterKey, float]) -> None:
        """Store rows, and increase counters in the same step."""

    def restore(self) -> tuple[list[RestoredTrace], list[tuple[bytes, float]], int]:
        """Return the open traces by first arrival, the closed ids by time, and the broken rows."""
