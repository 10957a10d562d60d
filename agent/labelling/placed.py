"""A trace that was counted just now, as far as labels are joined to it."""

from __future__ import annotations

from typing import NamedTuple

from agent.feedback.frames import keys_of
from agent.metrics.ranking import rank_order
from agent.trace import ScoredTrace, Trace

__all__ = ["Placed", "passage_keys"]


class Placed(NamedTuple):
    """Its service as it was sent, the hashes of its passages in rank order (None: not captured),
    and under which names it is in the windows."""

    service: str
    passages: tuple[str, ...] | None
    scored: ScoredTrace
    segments: tuple[str, ...]


def passage_keys(trace: Trace) -> tuple[str, ...] | None:
    """For `Placed.passages`."""
    if trace.passages is None:
        return None
    return keys_of([trace.passages[index].id for index in rank_order(trace.passages)])
