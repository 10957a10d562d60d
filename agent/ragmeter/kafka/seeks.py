"""Positions that are sought between two reads of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Seeks:
    """Positions that are sought between two reads of a consumer, never during one.

    A read that ends after a seek may hold records from before it. So what a read brings for a
    partition with a `pending` seek is dropped, and read again.
    """

    def __init__(self) -> None:
        self.pending: dict[Any, int] = {}

    def apply(self, consumer: Any) -> dict[Any, int]:
        """Seek, right before a read; return the positions."""
        sought = {}
        for tp in list(self.pending):  # other threads add to it
            offset = self.pending.pop(tp)
            if tp in consumer.assignment():
                consumer.seek(tp, offset)
                sought[tp] = offset
        return sought

    def valid(self, found: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return what a read has brought, without partitions that are to be sought."""
        return {tp: records for tp, records in found.items() if tp not in self.pending}
