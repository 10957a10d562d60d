"""Provision the topics, and measure the lag of the workers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator.clients import admin, consumer, partitions_of
from ragmeter.kafka.topics import (
    ActualTopic,
    TopicDifference,
    TopicSpec,
    compare_topic,
    consumed_topics,
    match_partitions,
    required_topics,
)

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_WAIT_MS = 30_000  # for leaders of new partitions


@dataclass(slots=True)
class ProvisionResult:
    created: list[TopicSpec] = field(default_factory=list)
    applied: list[TopicDifference] = field(default_factory=list)
    differ: list[TopicDifference] = field(default_factory=list)
    missing: list[TopicSpec] = field(default_factory=list)
    """Only of a dry run."""
    sound: list[TopicSpec] = field(default_factory=list)


def provision(settings: Settings, *, apply: bool = False, dry_run: bool = False) -> ProvisionResult:
    """Creates what is missing; with `apply` also changes what can be changed without harm."""
    done = ProvisionResult()
    with admin(settings.kafka) as client:
        topics = required_topics(settings)
        found = _describe_topics(client, topics)
        topics = match_partitions(topics, found)
        for topic in topics:
            if topic.name not in found:
                (done.missing if dry_run else done.created).append(topic)
                continue
            rows = compare_topic(topic, found[topic.name])
            safe = [row for row in rows if row.safe and apply and not dry_run]
            done.applied += safe
            done.differ += [row for row in rows if row not in safe]
            if not rows:
                done.sound.append(topic)
        if done.created:
            _create(client, done.created)
        for row in done.applied:
            _apply(client, row)
    return done


def _describe_topics(client: KafkaAdminClient, topics: list[TopicSpec]) -> dict[str, ActualTopic]:
    from kafka import TopicPartition
    from kafka.admin import ConfigResource, OffsetSpec

    names = {topic.name for topic in topics}
    # asked for all: a broker that creates topics by itself would create those that we name
    there = [one for one in client.describe_topics() if one["name"] in names]
    if not there:
        return {}
    resources = [ConfigResource("topic", one["name"]) for one in there]
    configs = client.describe_configs(resources, config_filter="all")["topic"]
    all_parts = [TopicPartition(one["name"], n) for one in there for n in _numbers(one)]
    first = client.list_partition_offsets(dict.fromkeys(all_parts, OffsetSpec.EARLIEST))
    last = client.list_partition_offsets(dict.fromkeys(all_parts, OffsetSpec.LATEST))
    held = {part.topic for part in all_parts if last[part].offset > first[part].offset}
    return {
        name: ActualTopic(
            len(one["partitions"]),
            min(len(part["replica_nodes"]) for part in one["partitions"]),
            {key: value["value"] for key, value in configs[name].items()},
            name not in held,
        )
        for one in there
        for name in [one["name"]]
    }


def _numbers(topic: dict[str, list[dict[str, int]]]) -> list[int]:
    return [part["partition_index"] for part in topic["partitions"]]


def _create(client: KafkaAdminClient, topics: list[TopicSpec]) -> None:
    from kafka.errors import TopicAlreadyExistsError

    # one by one: two who run this at once then both come to their end
    for topic in topics:
        new = {
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication or -1,
            "configs": topic.configs,
        }
        try:
            client.create_topics({topic.name: new})
        except TopicAlreadyExistsError:
            continue
    client.wait_for_topics([topic.name for topic in topics], _WAIT_MS)


def _apply(client: KafkaAdminClient, row: TopicDifference) -> None:
    from kafka.admin import ConfigResource

    if row.key == "partitions":
        client.create_partitions({row.topic: int(row.wanted)})
        client.wait_for_topics([row.topic], _WAIT_MS)
    else:
        client.alter_configs([ConfigResource("topic", row.topic, {row.key: row.wanted})])


_AGE_SECONDS = 5.0  # longest wait for the oldest records; their age is a help, not the answer


@dataclass(slots=True)
class PartitionLag:
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


def read_lag(settings: Settings) -> list[PartitionLag]:
    """Of all that the workers read. Reads offsets only, and one record of each that lags."""
    kafka = settings.kafka
    committed = _committed(kafka)
    with consumer(kafka) as reader:
        parts = partitions_of(reader, consumed_topics(settings))
        # the offsets first: a record that comes in between must not make the lag negative
        first, end = reader.beginning_offsets(parts), reader.end_offsets(parts)
        rows = {}
        for part in parts:
            known = committed.get(part)
            offset = known.offset if known is not None and known.offset >= 0 else None
            last = max(end[part], offset or 0)
            rows[part] = PartitionLag(part.topic, part.partition, first[part], last, offset)
        _ages(reader, rows)
    return list(rows.values())


def _committed(kafka: KafkaSettings) -> dict[Any, Any]:
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


def _ages(reader: Any, rows: dict[Any, PartitionLag]) -> None:
    waiting = {part for part, row in rows.items() if row.lag}
    reader.assign(list(waiting))
    for part in waiting:
        reader.seek(part, max(rows[part].committed or 0, rows[part].first))
    deadline = time.monotonic() + _AGE_SECONDS
    while waiting and time.monotonic() < deadline:
        for part, records in reader.poll(timeout_ms=500).items():
            if part in waiting and records:
                rows[part].age_seconds = max(0.0, time.time() - records[0].timestamp / 1000)
                waiting.discard(part)
                reader.pause(part)
