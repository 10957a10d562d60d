"""Feedback in: counted, checked against the clock, and durable before anybody is told so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from agent.config import Settings
from agent.counters import CounterKey
from agent.feedback.frames import said_by, trace_key
from agent.feedback.labels import Feedback
from agent.ingest.native import Bad
from agent.intake import QueueFull
from agent.store.feedback import FeedbackRows, NewRow

__all__ = ["rows_of", "write_feedback"]


def rows_of(
    items: Sequence[Feedback | Bad],
    event_time: float | None,
    now: float = math.inf,
    ahead: float = 0.0,
) -> list[NewRow]:
    """The rows of what could be read. A label more than `ahead` seconds after `now` (Unix time) is
    one of now, as with traces: of two words the later holds, and one wrong clock must not have the
    last word for years."""
    rows = []
    for item in items:
        if isinstance(item, Bad):
            continue
        at = item.timestamp.timestamp()
        if at > now + ahead:
            at = now
        rows.append(
            NewRow(
                trace_key(item.trace_id),
                item.service,
                item.scorer,
                at if event_time is None else event_time,
                said_by(item, at).dump(),
            )
        )
    return rows


def write_feedback(
    table: FeedbackRows,
    settings: Settings,
    items: Sequence[Feedback | Bad],
    source: str,
    unread: int,
    event_time: float | None,
    now: float,
) -> Mapping[CounterKey, float]:
    """Make the good ones durable, as of Unix time `now`; the counts that are durable with them.
    Raises `QueueFull`, and what the store raises."""
    rows = rows_of(items, event_time, now, settings.limits.future_seconds)
    # more at once than there is room for is taken where nothing else waits
    if rows and unread and unread + len(rows) > settings.feedback.waiting:
        raise QueueFull
    counts: dict[CounterKey, float] = {}
    if rows:
        counts["ragmeter_feedback_received_total", (("source", source),)] = len(rows)
    for item in items:
        if isinstance(item, Bad):
            key = ("ragmeter_dead_letters_total", (("reason", item.reason),))
            counts[key] = counts.get(key, 0) + 1
    table.add(rows, counts)
    return counts
