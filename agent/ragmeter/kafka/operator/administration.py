"""Provision the topics, and measure the lag of the workers."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ragmeter.config.settings import Settings
from ragmeter.kafka.connection import REACH_SECONDS
from ragmeter.kafka.operator.clients import (
    RETRY_SECONDS,
    KafkaCommandError,
    KafkaFailed,
    admin,
    ask,
    consumer,
    partitions_of,
    records_between,
)
from ragmeter.kafka.rights import name_right
from ragmeter.kafka.topics import (
    ActualTopic,
    TopicDifference,
    TopicSpec,
    compare_topic,
    consumed_topics,
    match_partitions,
    required_topics,
    state_topic,
)
from ragmeter.parts.collection import PartKinds

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_WAIT_MS = 30_000  # for leaders of new partitions
_AGE_SECONDS = 2.0  # longest wait for the oldest record of a partition


@dataclass(slots=True)
class ProvisionResult:
    """Topics by outcome; `missing` is filled by a dry run only."""

    created: list[TopicSpec] = field(default_factory=list)
    applied: list[TopicDifference] = field(default_factory=list)
    differ: list[TopicDifference] = field(default_factory=list)
    missing: list[TopicSpec] = field(default_factory=list)
    sound: list[TopicSpec] = field(default_factory=list)


def provision(
    settings: Settings, parts: PartKinds, *, apply: bool = False, dry_run: bool = False
) -> ProvisionResult:
    """Create missing topics and, with `apply`, change what can be changed without harm."""
    return ask(
        settings.kafka,
        lambda client: _provision(client, settings, parts, apply=apply, dry_run=dry_run),
    )


def _provision(
    client: KafkaAdminClient, settings: Settings, parts: PartKinds, *, apply: bool, dry_run: bool
) -> ProvisionResult:
    result = ProvisionResult()
    topics = required_topics(settings, parts)
    actual = _describe_topics(client, topics)
    for topic in match_partitions(topics, actual):
        if topic.name not in actual:
            (result.missing if dry_run else result.created).append(topic)
            continue
        differences = compare_topic(topic, actual[topic.name])
        safe = [one for one in differences if one.safe and apply and not dry_run]
        result.applied += safe
        result.differ += [one for one in differences if one not in safe]
        if not differences:
            result.sound.append(topic)
    if result.created:
        _create(client, result.created)
    for difference in result.applied:
        _apply(client, difference)
    return result


def _describe_topics(client: KafkaAdminClient, topics: list[TopicSpec]) -> dict[str, ActualTopic]:
    from kafka.admin import ConfigResource

    names = {topic.name for topic in topics}
    # all are asked for: a broker that creates topics by itself would create those that we name
    described = {one["name"]: one for one in client.describe_topics() if one["name"] in names}
    if not described:
        return {}
    resources = [ConfigResource("topic", name) for name in described]
    configs = client.describe_configs(resources, config_filter="all")["topic"]
    if hidden := [name for name, found in configs.items() if not found]:
        raise KafkaCommandError(name_right("DescribeConfigs of the topic", hidden))
    return {
        name: ActualTopic(
            len(topic["partitions"]),
            min(len(part["replica_nodes"]) for part in topic["partitions"]),
            {key: value["value"] for key, value in configs[name].items()},
        )
        for name, topic in described.items()
    }


def _create(client: KafkaAdminClient, topics: list[TopicSpec]) -> None:
    from kafka.errors import TopicAlreadyExistsError

    # one by one: two commands that run at once then both succeed
    for topic in topics:
        spec = {
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication or -1,
            "configs": topic.configs,
        }
        try:
            client.create_topics({topic.name: spec})
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


def rebuild(settings: Settings, parts: PartKinds) -> int:
    """Delete the state of the scores topic and its offsets, so that it is counted anew.

    Returns:
        The number of messages that the topic still holds, at most.

    Raises:
        KafkaCommandError: A worker is running, or a topic is missing.
    """
    from kafka.errors import GroupIdNotFoundError, NoError

    kafka = settings.kafka
    with consumer(kafka) as reader:
        scores = partitions_of(reader, kafka, [kafka.topics.scores])
        first = reader.beginning_offsets(scores)
        end = reader.end_offsets(scores)
    with admin(kafka) as client:
        members = client.describe_groups([kafka.group])[kafka.group].get("members", ())
        if members:
            raise KafkaCommandError(f"running workers: {len(members)}; stop them first")
        state = state_topic(settings)
        if state in client.list_topics():
            client.delete_topics([state])
        give_up_at = time.monotonic() + REACH_SECONDS
        while state in client.list_topics() and time.monotonic() < give_up_at:
            time.sleep(RETRY_SECONDS)
        with contextlib.suppress(GroupIdNotFoundError):  # nothing was ever committed
            outcomes = client.delete_group_offsets(kafka.group, scores)
            if refused := {kind for kind in outcomes.values() if kind is not NoError}:
                raise refused.pop()(f"the offsets of {kafka.topics.scores} could not be deleted")
    provision(settings, parts)
    return sum(end[part] - first[part] for part in scores)


@dataclass(slots=True)
class PartitionLag:
    """The lag of the workers in one partition.

    Records from `first` to before `end` are there. A group that has `committed` None begins at
    `first`. `age_seconds` is how long ago the oldest waiting record was written, if known.
    """

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None
    age_seconds: float | None = None

    @property
    def lag(self) -> int:
        """Records that wait."""
        return max(0, self.end - max(self.committed or 0, self.first))

    @property
    def lost(self) -> int:
        """Records that the retention deleted before they were counted."""
        return 0 if self.committed is None else max(0, self.first - self.committed)

    @property
    def beyond_end(self) -> int:
        """How far the committed offset lies beyond the end, which the brokers have lost."""
        return 0 if self.committed is None else max(0, self.committed - self.end)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; the age is rounded to 0.1 s."""
        fields = asdict(self)
        age = fields.pop("age_seconds")
        rounded = None if age is None else round(age, 1)
        return {
            **fields,
            "lag": self.lag,
            "lost": self.lost,
            "beyond_end": self.beyond_end,
            "age_seconds": rounded,
        }


def read_lag(settings: Settings, parts: PartKinds) -> list[PartitionLag]:
    """Return the lag of every partition that the workers read.

    Reads offsets only, and one record of each partition that lags.
    """
    kafka = settings.kafka
    committed = ask(
        kafka,
        lambda client: {
            tp: entry
            for group in (kafka.group, kafka.score_group)
            for tp, entry in client.list_group_offsets(group)[group].items()
        },
    )
    with consumer(kafka) as reader:
        partitions = partitions_of(reader, kafka, consumed_topics(settings, parts))
        # after the committed offsets: a record that comes in between must not make a lag negative
        first = reader.beginning_offsets(partitions)
        end = reader.end_offsets(partitions)
        rows = []
        for part in partitions:
            entry = committed.get(part)
            offset = entry.offset if entry is not None and entry.offset >= 0 else None
            last = end[part]
            row = PartitionLag(
                topic=part.topic,
                partition=part.partition,
                first=first[part],
                end=last,
                committed=offset,
            )
            rows.append(row)
            if not row.lag:
                continue
            # an open transaction holds records back: their age is only additional information
            with contextlib.suppress(KafkaFailed):
                waiting = records_between(
                    reader=reader, partition=part, start=offset or 0, end=last, quiet=_AGE_SECONDS
                )
                if (oldest := next(waiting, None)) is not None:
                    row.age_seconds = max(0.0, time.time() - oldest.timestamp / 1000)
                else:  # only the marks of transactions are left, which nobody reads
                    row.committed = last
    return rows
