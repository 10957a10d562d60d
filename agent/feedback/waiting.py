"""Which feedback waits for its trace, since when, and whose trace has come."""

from __future__ import annotations

__all__ = ["Waiting"]


class Waiting:
    """By the id of the feedback; what it says is kept elsewhere. Pure."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[bytes, float]] = {}  # its trace, since when
        self._of: dict[bytes, set[int]] = {}  # the ids by their trace
        self._came: set[int] = set()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, number: int) -> bool:
        return number in self._since

    def add(self, number: int, trace: bytes, since: float) -> None:
        self._since[number] = (trace, since)
        self._of.setdefault(trace, set()).add(number)

    def forget(self, number: int) -> None:
        self._came.discard(number)
        waiting = self._since.pop(number, None)
        if waiting is not None:
            rest = self._of.get(waiting[0], set())
            rest.discard(number)
            if not rest:
                self._of.pop(waiting[0], None)

    def arrived(self, trace: bytes) -> None:
        """The trace has come: what waits for it is in `ready`."""
        self._came |= self._of.get(trace, set())

    def ready(self, limit: int) -> list[int]:
        """The oldest whose trace has come."""
        return sorted(self._came)[:limit]

    def of(self, trace: bytes) -> list[int]:
        """What waits for this trace, oldest first."""
        return sorted(self._of.get(trace, ()))

    def before(self, past: float) -> list[int]:
        """What waits since a time before `past`."""
        return [number for number, (_, since) in self._since.items() if since < past]

    def oldest(self, count: int) -> list[int]:
        return sorted(self._since)[:count]
