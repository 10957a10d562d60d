"""Where what an agent or worker produces goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragmeter.aggregate.service_state import MakeNotifications
from ragmeter.core.score import ScoredTrace
from ragmeter.trace import Trace


@dataclass(frozen=True, slots=True)
class AgentOutputs:
    """Callbacks for what the agent produces. They run in the worker's thread and must not wait.

    Args:
        make_notifications: Makes the outbox items of an incident that people are told of, at a
            Unix time; they are stored in the same transaction as its state.
        on_notifications: Called after incidents have moved, durably, with their outbox items.
        on_results: Gets traces and their scores after they are durable; it must not raise.
        on_scores: Likewise, without the traces themselves.
    """

    make_notifications: MakeNotifications = lambda incident, now: ()
    on_notifications: Callable[[], None] = lambda: None
    on_results: Callable[[Sequence[tuple[Trace, ScoredTrace]]], None] | None = None
    on_scores: Callable[[Sequence[ScoredTrace]], None] = lambda traces: None
