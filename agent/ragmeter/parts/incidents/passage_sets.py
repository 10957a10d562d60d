"""How many requests get one and the same set of passages, whatever they ask."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from ragmeter.core.score import ScoredTrace

_WIDTH = 300  # seconds of a bucket
_KEPT = 6 * 3600  # seconds for which they are kept
_MAX_SETS = 24  # that a bucket counts at once
_LEAST = 20  # requests of which a share is told


@dataclass(slots=True)
class PassageSetCounts:
    """A row of the state: the requests of a bucket, and how many had each frequent set.

    Where there are more sets than places all counts fall by one (Misra and Gries, Science of
    Computer Programming 2, 1982): a set that more than one request in 25 had always has a place.
    """

    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """Count a request."""
        self.total += 1
        if name in self.counts or len(self.counts) < _MAX_SETS:
            self.counts[name] = self.counts.get(name, 0) + 1
            return
        self.counts = {one: count - 1 for one, count in self.counts.items() if count > 1}


class PassageSets:
    """The sets of passages of the services' requests, in buckets of event time."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, int], PassageSetCounts] = {}
        self._touched: dict[tuple[str, int], None] = {}

    def add(self, traces: Iterable[ScoredTrace]) -> None:
        """Count the requests that have passages."""
        for trace in traces:
            if not trace.passages:
                continue
            key = (trace.service, int(trace.timestamp // _WIDTH))
            self._touched[key] = None
            bucket = self._buckets.setdefault(key, PassageSetCounts())
            bucket.add(_name_set(trace.passages))

    def expire(self, now: float) -> None:
        """Drop the buckets that are too old at event time `now`."""
        oldest = (now - _KEPT) // _WIDTH
        for key in [key for key in self._buckets if key[1] < oldest]:
            self._drop(key)

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service."""
        for key in [key for key in self._buckets if key[0] not in services]:
            self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        del self._buckets[key]
        self._touched[key] = None

    def largest_share(self, service: str, start: float, end: float) -> float:
        """Return the share of the most frequent set in [start, end), 0 with few requests."""
        total = 0
        counts: dict[str, int] = {}
        for number in range(int(start // _WIDTH), int(end // _WIDTH) + 1):
            bucket = self._buckets.get((service, number))
            if bucket is None:
                continue
            total += bucket.total
            for name, count in bucket.counts.items():
                counts[name] = counts.get(name, 0) + count
        return max(counts.values(), default=0) / total if total >= _LEAST else 0.0

    def changes(self) -> dict[str, PassageSetCounts | None]:
        """Return the rows that changed since the last call, None for dropped ones."""
        touched, self._touched = self._touched, {}
        return {json.dumps(key): self._buckets.get(key) for key in touched}

    def restore(self, rows: Mapping[str, PassageSetCounts]) -> None:
        """Load rows by the names that `changes` gave them."""
        for name, row in rows.items():
            service, number = json.loads(name)
            self._buckets[service, number] = row


def _name_set(passages: Iterable[str]) -> str:
    text = "\n".join(sorted(passages))
    return blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
