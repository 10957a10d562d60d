"""The group of the owners with a state."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from aiokafka import TopicPartition

from ragmeter.config.settings import Settings
from ragmeter.kafka.reading_group import ReadingGroup

S = TypeVar("S")


class StateGroup(ReadingGroup):
    """The consumer group of the scores and spans, whose owners have a `state` each.

    `lock` is held while one of them changes, and by other threads that read one.
    """

    def __init__(self, settings: Settings, topics: Sequence[str], *parts: Any) -> None:
        super().__init__(settings, settings.kafka.group, topics, *parts)
        self.lock = threading.RLock()

    def states(self, kind: type[S]) -> dict[int, S]:
        """Return the loaded states of a kind by partition."""
        owners: list[tuple[TopicPartition, Any]] = list(self.owners.items())
        return {
            tp.partition: owner.state
            for tp, owner in owners
            if owner.loaded and isinstance(owner.state, kind)
        }
