"""Which records of spans were taken in already: `agent.kafka.state.replay_guard` for sources that
may have several records in one partition.

A source is complete, and enters the window of offsets, when all of its records are here. The
numbers of those that are not (a stage 1 that died in between; it sends all of them again) are kept
meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.kafka.messages.source import Source
from agent.kafka.state.replay_guard import ReplayGuard

__all__ = ["PartGuard"]


class PartGuard:
    """`width` as for `ReplayGuard`."""

    def __init__(self, width: int) -> None:
        self._whole = ReplayGuard(width)
        self._parts: dict[Source, set[int]] = {}

    @property
    def width(self) -> int:
        return self._whole.width

    def first(self, source: Source, number: int, count: int) -> bool:
        """Whether record `number` of the `count` of this source is new; it is known from now on."""
        known = self._parts.get(source)
        if known is None and count == 1:
            return self._whole.first(source)
        if known is None:
            if self._whole.knows(source):
                return False
            known = self._parts[source] = set()
        if number in known:
            return False
        known.add(number)
        if len(known) == count:
            del self._parts[source]
            self._whole.first(source)
        return True

    def _forget(self) -> None:
        """What the window has left behind will never be complete."""
        for source in [one for one in self._parts if self._whole.knows(one)]:
            del self._parts[source]

    def dump(self) -> dict[str, Any]:
        """JSON-able."""
        self._forget()
        parts = [[*source, *sorted(known)] for source, known in sorted(self._parts.items())]
        return {**self._whole.dump(), "parts": parts}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> PartGuard:
        """Back from `dump`. Raises as `ReplayGuard.load` does."""
        guard = cls(width)
        guard._whole = ReplayGuard.load(width, saved)
        for epoch, partition, offset, *known in saved["parts"]:
            guard._parts[Source(int(epoch), int(partition), int(offset))] = set(map(int, known))
        return guard
