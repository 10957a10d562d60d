"""The part `index`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.label_bounds import MAX_LABEL_CHARS
from ragmeter.parts.contract import DocumentKind, PageHome, Part, PartContext
from ragmeter.parts.index.events import (
    MAX_BYTES,
    SCHEMA,
    IndexEvent,
    decode_index_event,
    decode_index_events,
)
from ragmeter.parts.index.totals import Indexes, IndexState

_MAX_ROWS = 60  # versions on one page; the rest are in /metrics


class IndexPart(Part[IndexState]):
    """Counts the events of indexing jobs; they move no event time."""

    name = "index"
    package = __package__
    state: ClassVar[Any] = IndexState
    documents = DocumentKind(
        path="/v1/index",
        schema=SCHEMA,
        max_bytes=MAX_BYTES,
        max_waiting=2_000,  # jobs wait for their replies, so more are a mistake
        decode=decode_index_event,
        decode_body=decode_index_events,
        replies={"counted": "accepted", "duplicate": "duplicates", "old_version": "old_versions"},
    )

    def __init__(self, indexes: Indexes, counters: Counters) -> None:
        self.indexes = indexes
        self._counters = counters

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, without any index."""
        limits = context.settings.limits
        indexes = Indexes(
            limit=limits.services,
            chars=MAX_LABEL_CHARS,
            overflow=lambda: context.count_overflow("index"),
        )
        return cls(indexes, context.counters)

    def receive(self, document: IndexEvent, at: float, source: str) -> str:
        """Count an event of an indexing job."""
        outcome = self.indexes.add(document, at)
        self._counters.inc("ragmeter_index_events_total", (("outcome", outcome),))
        return outcome

    def samples(self) -> Iterable[GaugeSample]:
        """Return the gauges of every version of every index."""
        return self.indexes.gauges()

    def changes(self) -> Mapping[str, IndexState | None]:
        """Return what changed of indexes and of the ids of their events."""
        return self.indexes.changes()

    def restore(self, rows: Mapping[str, IndexState]) -> None:
        """Load indexes and the ids of their events."""
        self.indexes.restore(rows)

    @classmethod
    def page(cls, home: PageHome, service: str | None) -> Mapping[str, Any] | None:
        """Return the versions of indexes, the latest first."""
        with home.lock():
            places = cast(Sequence[Self], home.part_places(cls.name))
            versions = [one for part in places for one in part.indexes.versions(service)]
        if not versions:
            return None
        return {"versions": versions[:_MAX_ROWS], "hidden": max(0, len(versions) - _MAX_ROWS)}
