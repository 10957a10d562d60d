"""Rings of event-time buckets with running totals.

A ring has one bucket width. A span is a window on it: the last `buckets` of the ring, the open one
included. Its totals are kept by adding on arrival and subtracting on expiry, which is exact
(see `exact`), so reading a window never walks its buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.windows.bucket import Bucket, Total

__all__ = ["OwnerKey", "Ring", "Span"]

OwnerKey = tuple[str, str]
"""(service, segment); the segment "" is the whole service."""


@dataclass(slots=True)
class Span:
    """A window: `oldest` is the index of its first bucket once time is known."""

    name: str
    seconds: int
    buckets: int
    oldest: int = 0
    totals: dict[OwnerKey, Total] = field(default_factory=dict)


class Ring:
    """Buckets of `width` seconds by index (start = index * width), as many as its longest span.

    `worst`: whether its buckets keep worst traces.
    """

    def __init__(self, width: int, spans: list[Span], worst: bool) -> None:
        self.width = width
        self.spans = spans
        self.worst = worst
        self.keep = max(span.buckets for span in spans)
        self.rows: dict[int, dict[OwnerKey, Bucket]] = {}
        self.dirty: set[tuple[int, OwnerKey]] = set()
        self.gone: list[tuple[int, OwnerKey]] = []
        self.newest: int | None = None
        self._open: set[int] = set()

    @property
    def oldest(self) -> int:
        """The index of the oldest bucket kept; only once time is known."""
        assert self.newest is not None
        return self.newest - self.keep + 1

    def fold(self, index: int, owner: OwnerKey, delta: Bucket, give: bool = False) -> None:
        """Add `delta` to its bucket and to the totals of every span that reaches back to it.
        `give`: nobody else uses `delta`, it may become the bucket."""
        if index < self.oldest:
            return
        self._total(index, owner, delta)
        row = self.rows.setdefault(index, {})
        bucket = row.get(owner)
        if bucket is not None:
            bucket.add(delta, self.worst)
        elif give:
            row[owner] = delta
            if not self.worst:
                delta.worst = {}
        else:
            row[owner] = bucket = Bucket()
            bucket.add(delta, self.worst)
        self.dirty.add((index, owner))
        self._open.add(index)

    def retract(self, index: int, owner: OwnerKey, delta: Bucket) -> None:
        """Undo `fold`, where it is still there: a bucket may have expired since, and one of a
        window that is new in the configuration never had it."""
        bucket = self.rows.get(index, {}).get(owner) if index >= self.oldest else None
        if bucket is None or not bucket.holds(delta):
            return
        bucket.subtract(delta)
        for span in self.spans:
            if index >= span.oldest:
                span.totals[owner].subtract(delta)
        self.dirty.add((index, owner))
        self._open.add(index)

    def restore(self, index: int, owner: OwnerKey, bucket: Bucket) -> None:
        """Put back a saved bucket."""
        bucket.saved = True
        bucket.seal()
        self.rows.setdefault(index, {})[owner] = bucket
        self._total(index, owner, bucket)

    def _total(self, index: int, owner: OwnerKey, delta: Bucket) -> None:
        for span in self.spans:
            if index >= span.oldest:
                total = span.totals.get(owner)
                if total is None:
                    total = span.totals[owner] = Total()
                total.add(delta)

    def advance(self, newest: int) -> bool:
        """Move on to the bucket `newest`; whether any total changed. Work is proportional to what
        expires, not to the gap."""
        if self.newest is not None and newest <= self.newest:
            return False
        self.newest = newest
        changed = [self._expire(span, newest - span.buckets + 1) for span in self.spans]
        for index in [i for i in self._expired(self.oldest) if i in self.rows]:
            for owner, bucket in self.rows.pop(index).items():
                self.dirty.discard((index, owner))
                if bucket.saved:
                    self.gone.append((index, owner))
        for index in [i for i in self._open if i < newest]:
            self._open.discard(index)
            for bucket in self.rows.get(index, {}).values():
                bucket.seal()
        return any(changed)

    def _expired(self, oldest: int) -> list[int]:
        return sorted(index for index in self.rows if index < oldest)

    def _expire(self, span: Span, oldest: int) -> bool:
        changed = False
        for index in self._expired(oldest):
            if index < span.oldest:
                continue
            changed = True
            for owner, bucket in self.rows[index].items():
                total = span.totals[owner]
                total.subtract(bucket)
                if total.empty:
                    del span.totals[owner]
        span.oldest = oldest
        return changed

    def buckets(self, span: Span) -> Iterator[tuple[int, dict[OwnerKey, Bucket]]]:
        """The filled buckets of a span, oldest first."""
        for index in sorted(self.rows):
            if index >= span.oldest:
                yield index, self.rows[index]

    def drain(self) -> Iterator[tuple[int, OwnerKey, Bucket | None]]:
        """What changed since the last drain, in a fixed order; None where it expired."""
        for index, owner in sorted(self.gone):
            yield index, owner, None
        for index, owner in sorted(self.dirty):
            bucket = self.rows[index][owner]
            bucket.saved = True
            yield index, owner, bucket
        self.gone.clear()
        self.dirty.clear()
