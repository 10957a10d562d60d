"""Spans, and states of them with a clock that is set by hand."""

from __future__ import annotations

from collections import Counter

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.assembler import AssemblyBounds
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import StoredPart, serialise_spans
from ragmeter.kafka.state.assembly import AssemblyState

__all__ = ["OTLP", "Clock", "counted", "record", "span", "state_of"]

OTLP = OtlpSettings(grace_seconds=2, idle_seconds=30, max_age_seconds=100)


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def span(trace: int, number: int, root: bool = False) -> StoredPart:
    one = Span(f"{trace:032x}", f"{number + 1:016x}", "" if root else "f" * 16, name=f"s{number}")
    return serialise_spans([one], Counter())[0]


def record(*parts: StoredPart) -> list[StoredPart]:
    return list(parts)


def state_of(clock: Clock, bounds: AssemblyBounds | None = None) -> AssemblyState:
    return AssemblyState(OTLP, bounds=bounds, clock=clock, monotonic=clock)


def counted(state: AssemblyState, name: str = "") -> dict[str, int]:
    """By the last label: results and reasons."""
    found: Counter[str] = Counter()
    for (key, labels), by in state.counters.items():
        if name in key:
            found[labels[-1][1] if labels else key] += int(by)
    return dict(found)
