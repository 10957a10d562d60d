"""An outbox that dies with the process."""

from __future__ import annotations

import math

from ragmeter.store.rows import OutboxItem


class MemoryOutbox:
    """What `NotificationOutbox` means, in its smallest form."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[float, OutboxItem]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def next_at(self) -> float:
        """When the first of its items becomes due; infinity where there is none."""
        return min((at for at, _ in self._items.values()), default=math.inf)

    def put(self, item: OutboxItem) -> None:
        """Enqueue; an id that is there already changes nothing."""
        self._items.setdefault(item.id, (item.created, item))

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        heads: dict[str, tuple[float, OutboxItem]] = {}
        for at, item in self._items.values():
            heads.setdefault(item.key, (at, item))
        return [item for at, item in heads.values() if at <= now][:limit]

    def done(self, item_id: str) -> None:
        self._items.pop(item_id, None)

    def retry(self, item_id: str, at: float) -> None:
        _, item = self._items[item_id]
        again = OutboxItem(item.id, item.key, item.body, item.created, item.attempts + 1)
        self._items[item_id] = (at, again)
