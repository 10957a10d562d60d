"""The topics that the workers need, and their differences from those of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ragmeter.config.kafka import KafkaSecurity
from ragmeter.config.settings import Settings
from ragmeter.parts.collection import PartKinds, document_topics

_HOUR_MS = 3_600_000
_OVERHEAD = 64 * 2**10  # of a message beside its body: headers, key, the batch around it
# A segment is compacted only when it is closed: after a week or a gigabyte by default, and what is
# old in it is read at each takeover. So it is closed after a few minutes or megabytes, compacted
# when a tenth is old, and in any case soon after.
_SEGMENT_MS = 5 * 60_000
_SEGMENT_BYTES = 8 * 2**20
_DIRTY = "0.1"
_COMPACTION_LAG_MS = 10 * 60_000
# What was deleted is remembered for so long: longer than any takeover takes to read the topic.
_DELETED_MS = _HOUR_MS
# Two weeks for a person to look at dead letters and send them again.
_DEAD_HOURS = 336.0
# Documents of two weeks are read again by a group that counts everything anew.
_DOCUMENT_HOURS = 336.0
SCORED = "scored traces"
SPANS = "spans"
STATE = "state"
_OPEN_SPANS = "open spans"
_STATE_OF = {STATE: SCORED, _OPEN_SPANS: SPANS}
_PARTITIONS_COST = {
    STATE: "it must have those of the scores; delete it with all workers stopped, and the state"
    " (windows, alerts, what was counted) begins anew",
    _OPEN_SPANS: "it must have those of the spans; delete it with all workers stopped, and traces"
    " that were open are lost",
    SPANS: "traces that are open would be torn in two; stop the senders, and change it when"
    " ragmeter_otlp_open_traces is 0, together with its changelog",
}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be; `grows`: partitions may be added, as no state depends on them."""

    name: str
    what: str
    partitions: int
    replication: int | None
    configs: dict[str, str]
    grows: bool = False


@dataclass(frozen=True, slots=True)
class ActualTopic:
    """A topic as the cluster has it."""

    partitions: int
    replication: int
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """A difference; `safe` to apply: nothing is deleted or counted anew, and no worker stops."""

    topic: str
    key: str
    actual: str
    wanted: str
    cost: str
    safe: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.key} is {self.actual}, not {self.wanted}: {self.cost}"


def required_topics(settings: Settings, parts: PartKinds) -> list[TopicSpec]:
    """Return every topic: the workers create none."""
    kafka = settings.kafka
    names = kafka.topics
    many = kafka.partitions
    kept = _kept(kafka.retention_hours)
    # A trace may be larger than the megabyte that Kafka takes by default, a dead one is no smaller.
    large = {"max.message.bytes": str(max(2**20, settings.limits.trace_bytes) + _OVERHEAD)}
    # a producer whose clock is wrong must not move event time on with its traces
    arrival = {"message.timestamp.type": "LogAppendTime"}
    compact = {
        "cleanup.policy": "compact",
        "segment.ms": str(_SEGMENT_MS),
        "segment.bytes": str(_SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": _DIRTY,
        "max.compaction.lag.ms": str(_COMPACTION_LAG_MS),
        "delete.retention.ms": str(_DELETED_MS),
    }
    spans = (
        (names.spans, SPANS, many, kept | large, False),
        (open_spans_topic(settings), _OPEN_SPANS, many, compact | large, False),
    )
    documents = [
        (
            getattr(names, kind.topic),
            kind.topic,
            many,
            _kept(_DOCUMENT_HOURS)
            | {"max.message.bytes": str(kind.max_bytes + _OVERHEAD)}
            | arrival,
            True,
        )
        for part in parts
        if (kind := part.documents) is not None and kind.topic
    ]
    rows = [
        (names.traces, "traces in", many, kept | large | arrival, True),
        *(spans if kafka.traces_encoding != "native" else ()),
        (names.scores, SCORED, many, kept, False),
        # one partition: an offset alone then names a dead letter
        (names.dead, "dead letters", 1, _kept(_DEAD_HOURS) | large, False),
        *documents,
        (names.control, "control", 1, compact, False),
        (state_topic(settings), STATE, many, compact, False),
    ]
    # With three copies, what is acknowledged by two outlives the loss of any one broker.
    sure = {"min.insync.replicas": "2"} if (kafka.replication or 0) >= 3 else {}
    return [
        TopicSpec(
            name=name,
            what=what,
            partitions=count,
            replication=kafka.replication,
            configs=configs | sure,
            grows=grows,
        )
        for name, what, count, configs, grows in rows
    ]


def state_topic(settings: Settings) -> str:
    """Return the name of the topic with the state of the scores topic."""
    return f"{settings.kafka.group}-aggregates"


def open_spans_topic(settings: Settings) -> str:
    """Return the name of the topic with the open traces."""
    return f"{settings.kafka.group}-open-spans"


def consumed_topics(settings: Settings, parts: PartKinds) -> tuple[str, ...]:
    """Return the topics that the workers read and commit."""
    return (*settings.kafka.counted_topics, *document_topics(parts, settings))


def _kept(hours: float) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(int(hours * _HOUR_MS))}


def match_partitions(topics: list[TopicSpec], actual: dict[str, ActualTopic]) -> list[TopicSpec]:
    """Give topics of states the partitions that the topics have whose states they are."""
    by_use = {topic.what: actual[topic.name] for topic in topics if topic.name in actual}
    return [
        replace(topic, partitions=by_use[_STATE_OF[topic.what]].partitions)
        if _STATE_OF.get(topic.what) in by_use
        else topic
        for topic in topics
    ]


def describe_missing_topics(names: Iterable[str], security: KafkaSecurity) -> str:
    """Return what to do about topics that are missing, or that the user may not see."""
    right = ", or let the user Describe it" if security.sasl or security.cert_file else ""
    return f"there is no topic {', '.join(names)}; make it with `ragmeter kafka init`{right}"


def find_topic_problem(settings: Settings, parts: PartKinds, actual: Mapping[str, int]) -> str:
    """Return why a worker cannot start, given the partitions of the cluster's topics, or ""."""
    unread = set(settings.kafka.topics.written_by_others) - set(consumed_topics(settings, parts))
    needed = [topic for topic in required_topics(settings, parts) if topic.name not in unread]
    missing = [topic.name for topic in needed if topic.name not in actual]
    if missing:
        return describe_missing_topics(missing, settings.kafka.security)
    # of traces, documents and dead letters any number will do: no state depends on it
    wrong = [
        f"{topic.name} has {actual[topic.name]} partitions"
        for topic in needed
        if topic.what in (*_STATE_OF, *_STATE_OF.values())
        if actual[topic.name] != topic.partitions
    ]
    if wrong:
        number = settings.kafka.partitions
        return (
            f"{' and '.join(wrong)}, kafka.partitions is {number};"
            " `ragmeter kafka init` says what can be done"
        )
    return ""


def compare_topic(topic: TopicSpec, actual: ActualTopic) -> list[TopicDifference]:
    """Return all differences of a topic."""
    found: list[tuple[str, object, object, str, bool]] = []
    more = topic.partitions - actual.partitions
    if more > 0 or (more and not topic.grows):
        if topic.what == SCORED and more > 0:
            cost = "services would move away from their state; take another group and other topics"
        elif topic.what in _PARTITIONS_COST:
            cost = _PARTITIONS_COST[topic.what]
        elif more < 0:
            cost = "Kafka cannot take partitions away; set kafka.partitions to what is there"
        elif topic.grows:
            cost = "what is new goes to the new ones as well; nothing else changes"
        else:
            cost = "only one is of use"
        found.append(("partitions", actual.partitions, topic.partitions, cost, topic.grows))
    if topic.replication not in (None, actual.replication):
        cost = "every byte is copied between brokers; use kafka-reassign-partitions"
        found.append(("replication", actual.replication, topic.replication, cost, False))
    for key, want in topic.configs.items():
        have = actual.configs.get(key)
        if have != want:
            found.append((key, have, want, *_config_cost(key, want, have)))
    return [
        TopicDifference(
            topic=topic.name, key=key, actual=str(have), wanted=str(want), cost=cost, safe=safe
        )
        for key, have, want, cost, safe in found
    ]


def _config_cost(key: str, want: str, have: str | None) -> tuple[str, bool]:
    """Return what a change costs, and whether it is safe."""
    if key == "cleanup.policy" and want == "compact":
        return (
            "what the old policy has deleted of it is lost; from now on the last of each key"
            " is kept"
        ), True
    if key == "cleanup.policy":
        return "what is older than its retention is deleted", False
    if key == "retention.ms" and _is_less(want, have):
        return f"what is older than {int(want) / _HOUR_MS:g} h is deleted", False
    if key == "retention.ms":
        return "more disk", True
    if key == "max.message.bytes" and _is_less(want, have):
        return "larger messages, as they are taken now, are refused", False
    return "takes effect at once, nothing is deleted", True


def _is_less(want: str, have: str | None) -> bool:
    try:
        return have is None or int(have) < 0 or int(want) < int(have)
    except ValueError:
        return True
