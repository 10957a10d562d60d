"""Records as they are, for the eyes of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.kafka.operator.clients import Failed, consumer, partitions_of
from agent.kafka.operator.dead_letters import records_between, the_partition
from agent.settings.kafka import Kafka
from agent.terminal import plain

__all__ = ["escaped", "newest", "one_record"]


def escaped(data: bytes | None, most: int) -> str:
    """On one line, at most `most` bytes of it: nothing in it can steer a terminal."""
    if data is None:
        return ""
    text = plain(data[:most].decode("utf-8", "backslashreplace")).replace("\n", "\\n")
    return text if len(data) <= most else f"{text}... ({len(data)} bytes)"


def one_record(kafka: Kafka, topic: str, offset: int) -> Any:
    """Raises `Failed` where it is no longer, or not yet."""
    with consumer(kafka) as reader:
        part = the_partition(reader, kafka)
        first, end = reader.beginning_offsets([part])[part], reader.end_offsets([part])[part]
        for record in records_between(reader, part, offset, end):
            if record.offset == offset:
                return record
            break
    raise Failed(f"{topic} has no record at offset {offset}; it has {first} to {end - 1}")


def newest(kafka: Kafka, topic: str, last: int, *, follow: bool = False) -> Iterator[Any]:
    """The `last` records of each partition, in the order of their times, and then what comes."""
    with consumer(kafka) as reader:
        parts = partitions_of(reader, [topic])
        first, end = reader.beginning_offsets(parts), reader.end_offsets(parts)
        found = [
            record
            for part in parts
            for record in records_between(
                reader, part, max(first[part], end[part] - last), end[part]
            )
        ]
        yield from sorted(found, key=lambda record: record.timestamp)
        if follow:
            reader.assign(parts)
            for part in parts:
                reader.seek(part, end[part])
            while True:
                for records in reader.poll(timeout_ms=500).values():
                    yield from records
