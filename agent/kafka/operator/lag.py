"""`ragmeter kafka lag`: how far the workers are behind, by partition."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from agent.kafka.operator.clients import admin, consumer, partitions_of
from agent.kafka.topics import read
from agent.settings import Settings
from agent.settings.kafka import Kafka

__all__ = ["Lag", "read_lag"]

AGE_SECONDS = 5.0  # longest wait for the oldest records; their age is a help, not the answer


@dataclass(slots=True)
class Lag:
    """`committed` is None where the group has committed nothing: it begins at `first`.

    `lost` were deleted by the retention before they were counted. `age_seconds` is how long ago the
    oldest record that waits was written.
    """

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None
    age_seconds: float | None = None

    @property
    def lag(self) -> int:
        return self.end - max(self.committed or 0, self.first)

    @property
    def lost(self) -> int:
        return 0 if self.committed is None else max(0, self.first - self.committed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first": self.first,
            "end": self.end,
            "committed": self.committed,
            "lag": self.lag,
            "lost": self.lost,
            "age_seconds": None if self.age_seconds is None else round(self.age_seconds, 1),
        }


def read_lag(settings: Settings) -> list[Lag]:
    """Of all that the workers read. Reads offsets only, and one record of each that lags."""
    kafka = settings.kafka
    committed = _committed(kafka)
    with consumer(kafka) as reader:
        parts = partitions_of(reader, read(settings))
        # the offsets first: a record that comes in between must not make the lag negative
        first, end = reader.beginning_offsets(parts), reader.end_offsets(parts)
        rows = {}
        for part in parts:
            known = committed.get(part)
            offset = known.offset if known is not None and known.offset >= 0 else None
            last = max(end[part], offset or 0)
            rows[part] = Lag(part.topic, part.partition, first[part], last, offset)
        _ages(reader, rows)
    return list(rows.values())


def _committed(kafka: Kafka) -> dict[Any, Any]:
    """Asked again, by a client that looks for the coordinator anew, while a new cluster is still
    making its topic of the offsets and while the group moves to another broker."""
    from kafka.errors import RetriableError

    deadline = time.monotonic() + kafka.timeout_seconds
    while True:
        try:
            with admin(kafka) as client:
                found: dict[Any, Any] = client.list_group_offsets(kafka.group)[kafka.group]
                return found
        except RetriableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _ages(reader: Any, rows: dict[Any, Lag]) -> None:
    waiting = {part for part, row in rows.items() if row.lag}
    reader.assign(list(waiting))
    for part in waiting:
        reader.seek(part, max(rows[part].committed or 0, rows[part].first))
    deadline = time.monotonic() + AGE_SECONDS
    while waiting and time.monotonic() < deadline:
        for part, records in reader.poll(timeout_ms=500).items():
            if part in waiting and records:
                rows[part].age_seconds = max(0.0, time.time() - records[0].timestamp / 1000)
                waiting.discard(part)
                reader.pause(part)
