"""Tells whether messages of a topic that is not compacted were passed over."""

from __future__ import annotations

__all__ = ["Gap", "NoGaps"]


class Gap(RuntimeError):
    """Offsets are missing: committing past them would lose what they held."""


class NoGaps:
    """By partition and generation. The first offset of a generation may be any, and one may go
    back: both come from a seek to what was committed."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._last: dict[int, tuple[int, int]] = {}

    def check(self, partition: int, generation: int, offset: int) -> None:
        last = self._last.get(partition)
        if last is not None and last[0] == generation and offset > last[1] + 1:
            raise Gap(
                f"{self._topic}/{partition}: offset {offset} came after {last[1]};"
                " a restart reads again from what was committed"
            )
        if last is None or generation >= last[0]:
            self._last[partition] = (generation, offset)
