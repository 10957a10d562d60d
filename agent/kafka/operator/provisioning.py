"""`ragmeter kafka init`: make the topics, and say what differs where they are there already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.kafka.operator.clients import admin
from agent.kafka.topics import Difference, Found, Topic, differences, fitted, wanted
from agent.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

__all__ = ["Provisioned", "provision"]

WAIT_MS = 30_000  # for leaders of new partitions


@dataclass(slots=True)
class Provisioned:
    created: list[Topic] = field(default_factory=list)
    applied: list[Difference] = field(default_factory=list)
    differ: list[Difference] = field(default_factory=list)
    missing: list[Topic] = field(default_factory=list)
    """Only of a dry run."""
    sound: list[Topic] = field(default_factory=list)


def provision(settings: Settings, *, apply: bool = False, dry_run: bool = False) -> Provisioned:
    """Creates what is missing; with `apply` also changes what can be changed without harm."""
    done = Provisioned()
    with admin(settings.kafka) as client:
        topics = wanted(settings)
        found = _found(client, topics)
        topics = fitted(topics, found)
        for topic in topics:
            if topic.name not in found:
                (done.missing if dry_run else done.created).append(topic)
                continue
            rows = differences(topic, found[topic.name])
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


def _found(client: KafkaAdminClient, topics: list[Topic]) -> dict[str, Found]:
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
        name: Found(
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


def _create(client: KafkaAdminClient, topics: list[Topic]) -> None:
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
    client.wait_for_topics([topic.name for topic in topics], WAIT_MS)


def _apply(client: KafkaAdminClient, row: Difference) -> None:
    from kafka.admin import ConfigResource

    if row.key == "partitions":
        client.create_partitions({row.topic: int(row.wanted)})
        client.wait_for_topics([row.topic], WAIT_MS)
    else:
        client.alter_configs([ConfigResource("topic", row.topic, {row.key: row.wanted})])
