"""Scored traces for the export, and an agent that only counts."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from ragmeter.core.counters import Counters
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.scoring.scorer import summarise_trace
from ragmeter.trace import Trace
from ragmeter_exporters.otel.exporter import EXPORTED_COUNTER

__all__ = ["SPAN", "TRACE", "Agent", "done", "score"]

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Agent:
    """The part of a running agent that the exporter sees."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.mutex = threading.RLock()

    def lock(self) -> AbstractContextManager[Any]:
        return self.mutex

    def counted(self) -> dict[str, float]:
        """How many results by how they ended."""
        with self.mutex:
            return {
                dict(labels)["result"]: value
                for (name, labels), value in self.counters.items()
                if name == EXPORTED_COUNTER
            }


def score(metric: str = "grounding", value: float | None = 0.25, **changes: Any) -> Score:
    fields: dict[str, Any] = {"scorer": "builtin", "state": ScoreState.SCORED, "probability": 0.5}
    if value is None:
        fields |= {"state": ScoreState.UNSCORED, "reason": "no_text"}
    return Score(metric, value=value, **{**fields, **changes})


def done(
    *scores: Score, trace_id: str = "t-1", span: bool = True, number: int = 1
) -> list[tuple[Trace, ScoredTrace]]:
    """`number` traces with these scores each."""
    found = []
    for index in range(number):
        ids = {"trace_id": TRACE, "span_id": SPAN} if span else None
        name = trace_id if number == 1 else f"{trace_id}-{index}"
        trace = Trace.model_validate(
            {"trace_id": name, "service": "bot", "timestamp": 1_790_000_000, "span": ids}
        )
        found.append((trace, summarise_trace(trace, list(scores or [score()]))))
    return found
