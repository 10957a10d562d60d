"""Persistent counters and histograms, identified by name and labels.

A counter is a name with label pairs. A histogram is kept as its cumulative Prometheus buckets
(`NAME_bucket{le}`, `NAME_sum`, `NAME_count`), so that both live in one table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

CounterKey = tuple[str, tuple[tuple[str, str], ...]]
"""(name, ((label, value), ...)) with the labels in a fixed order."""

Counts = dict[CounterKey, float]
"""By how much each is to grow."""

GaugeSample = tuple[str, tuple[tuple[str, str], ...], float]
"""(name, labels, value)"""


@dataclass(frozen=True, slots=True)
class Exemplar:
    trace_id: str
    value: float
    timestamp: float


class Counters:
    """Monotone counts by name and labels.

    `drain` gives what changed since the last drain, with its whole value: writing a row twice is
    harmless.
    """

    def __init__(self) -> None:
        self._values: dict[CounterKey, float] = {}
        self._changed: set[CounterKey] = set()
        self.exemplars: dict[CounterKey, Exemplar] = {}

    def inc(self, name: str, labels: tuple[tuple[str, str], ...] = (), by: float = 1) -> None:
        key = (name, labels)
        # a float: counts from outside may pass what SQLite takes as a whole number
        self._values[key] = self._values.get(key, 0.0) + float(by)
        self._changed.add(key)

    def get(self, name: str, labels: tuple[tuple[str, str], ...] = ()) -> float:
        return self._values.get((name, labels), 0)

    def items(self) -> Iterator[tuple[CounterKey, float]]:
        yield from self._values.items()

    def observe(
        self,
        name: str,
        labels: tuple[tuple[str, str], ...],
        value: float,
        edges: Sequence[float],
        exemplar: Exemplar | None = None,
    ) -> None:
        """Add a value to the histogram `name`; `edges` are its upper bounds without +Inf.

        Buckets hold their own count, not the cumulative one: the exporter adds them up.
        """
        index = bisect_left(edges, value)
        edge = "+Inf" if index == len(edges) else repr(float(edges[index]))
        key = (f"{name}_bucket", (*labels, ("le", edge)))
        self._values[key] = self._values.get(key, 0) + 1
        self._changed.add(key)
        self.inc(f"{name}_sum", labels, value)
        if exemplar is not None:
            self.exemplars[key] = exemplar

    def forget(self, label: str, value: str) -> None:
        """Drop every counter that has this label value; the next drain says so."""
        for key in [key for key in self._values if (label, value) in key[1]]:
            del self._values[key]
            self.exemplars.pop(key, None)
            self._changed.add(key)

    def drain(self) -> list[tuple[CounterKey, float | None]]:
        """What changed since the last drain, with its whole value; None where it was dropped."""
        changed = [(key, self._values.get(key)) for key in self._changed]
        self._changed.clear()
        return changed

    def add_saved(self, counts: Mapping[CounterKey, float]) -> None:
        """Add what the store has added already, in a transaction of its own.

        A key is counted either this way or by `inc`, never both: `drain` writes whole values.
        """
        for key, by in counts.items():
            self._values[key] = self._values.get(key, 0) + by

    def load(self, rows: Iterable[tuple[CounterKey, float]]) -> None:
        self._values.update(rows)
