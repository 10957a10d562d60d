"""The part `canary`."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Self, get_args

from ragmeter.core.counters import Counters
from ragmeter.parts.contract import Part, PartContext, ScoredBatch
from ragmeter.trace import Status


class CanaryPart(Part[None]):
    """Counts canaries by how they ended; their results are series of the windows."""

    name = "canary"
    package = __package__
    state: ClassVar[Any] = None

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part."""
        return cls(context.counters)

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Count the canaries that arrived."""
        ended = Counter((canary.service, canary.status) for canary in run.canaries)
        for service in {service for service, _ in ended}:
            for status in get_args(Status):
                # a series that starts at 0 loses no first increase to `rate()`
                key = (("service", service), ("status", status))
                self._counters.inc("rag_canaries_total", key, ended[service, status])
