"""Which log records carry content of a span, and as what they join its events."""

from __future__ import annotations

from agent.ingest.spans import Event, LogEvent, Value

__all__ = ["log_event", "may_carry"]

CONTENT = ("gen_ai.", "llm.", "db.query.", "db.search.")
# Scores: our own come back this way where one Collector serves both directions.
SCORES = "gen_ai.evaluation."


def may_carry(name: str) -> bool:
    """Whether an event of that name is worth reading. Plain log lines have no name."""
    return bool(name) and not name.startswith(SCORES)


def log_event(
    trace_id: str,
    span_id: str,
    name: str,
    time: int,
    attributes: dict[str, Value],
    body: Value,
) -> LogEvent | None:
    """The record as an event of its span, None where it is only a line of a log.

    Content is in the body (a map) or in the attributes, by convention; both become attributes.
    Some frameworks name every log line by its source, so a name alone is not enough.
    """
    if not (
        name.startswith(CONTENT)
        or isinstance(body, dict)
        or any(key.startswith(CONTENT) for key in attributes)
    ):
        return None
    if isinstance(body, dict):
        attributes = {**body, **attributes}
    elif body not in (None, ""):
        attributes.setdefault("body", body)
    return LogEvent(trace_id, span_id, Event(name, time, attributes))
