"""Notifications that wait, as rows of the state: what SQLite's outbox is for the embedded agent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.store.rows import OutboxItem

__all__ = ["Outbox"]


class Outbox:
    """Delivered at least once: a row goes with the step after its delivery. When to try again is
    not kept: after a restart all that waits is due.

    Nothing is due before the step it came with is durable (`settled`). A step that never was is
    done anew, perhaps at another event time: then the receiver would be told of two firings.
    """

    def __init__(self) -> None:
        self._items: dict[str, OutboxItem] = {}
        self._due: dict[str, float] = {}
        self._number: dict[str, int] = {}
        self._last = 0
        self._changed: set[str] = set()
        self._unsettled: set[str] = set()

    def add(self, items: Iterable[OutboxItem]) -> None:
        """One with a known id is the same again."""
        for item in items:
            if item.id not in self._items:
                self._last += 1
                self._items[item.id], self._number[item.id] = item, self._last
                self._changed.add(item.id)
                self._unsettled.add(item.id)

    def settled(self) -> None:
        """The last step is durable."""
        self._unsettled.clear()

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        """To be sent, oldest first; none before an older one of its key."""
        first: dict[str, OutboxItem] = {}
        for item in self._items.values():
            first.setdefault(item.key, item)
        return [
            one
            for one in first.values()
            if one.id not in self._unsettled and self._due.get(one.id, 0.0) <= now
        ][:limit]

    def done(self, item_id: str) -> None:
        if self._items.pop(item_id, None) is not None:
            self._due.pop(item_id, None)
            self._unsettled.discard(item_id)
            del self._number[item_id]
            self._changed.add(item_id)

    def retry(self, item_id: str, at: float) -> None:
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, attempts=item.attempts + 1)
            self._due[item_id] = at

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def drain(self) -> dict[str, bytes | None]:
        changed, self._changed = sorted(self._changed), set()
        return {name: self._row(name) for name in changed}

    def _row(self, name: str) -> bytes | None:
        item = self._items.get(name)
        if item is None:
            return None
        return json.dumps([self._number[name], item.key, item.body, item.created]).encode()

    def load(self, rows: Sequence[tuple[str, bytes]]) -> None:
        read = sorted((json.loads(data), name) for name, data in rows)
        for (number, key, body, created), name in read:
            self._items[name] = OutboxItem(name, key, body, created)
            self._number[name] = self._last = number
