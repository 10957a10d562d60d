"""To come."""

from __future__ import annotations

from agent.ingest.conventions.reading import Reading
from agent.ingest.spans import Span

__all__ = ["matches", "read"]


def matches(span: Span) -> bool:
    return False


def read(span: Span) -> Reading:
    return Reading(convention="")
