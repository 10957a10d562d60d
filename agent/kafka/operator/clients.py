"""Clients of kafka-python for the commands: one line where anything fails, in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.kafka.reach import Unreachable, check
from agent.kafka.security import SecurityError, client_options
from agent.settings.kafka import Kafka

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

__all__ = ["Failed", "admin", "consumer", "guarded", "partitions_of", "producer"]

FETCH_BYTES = 8 * 2**20  # of a partition: more than the largest message, little for a process


class Failed(Exception):
    """What a command could not do, in one line."""


@contextmanager
def guarded(kafka: Kafka) -> Iterator[None]:
    """The brokers let us in; what a client raises is one line. Raises `Failed`."""
    try:
        from kafka.errors import KafkaError
    except ImportError:
        raise Failed("the commands need the extra: pip install 'ragmeter[kafka]'") from None
    for name in ("kafka", "aiokafka"):
        # what they would tell is in the one line; only -v wants to know of every attempt
        if not logging.getLogger().isEnabledFor(logging.DEBUG):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        check(kafka)
        yield
    except (Unreachable, SecurityError) as error:
        raise Failed(str(error)) from None
    except KafkaError as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise Failed(f"Kafka: {text[:500] or type(error).__name__}") from None


@contextmanager
def _open(kind: Callable[..., Any], options: dict[str, Any], **closing: Any) -> Iterator[Any]:
    client = kind(**options)
    try:
        yield client
    finally:
        client.close(**closing)


@contextmanager
def admin(kafka: Kafka) -> Iterator[KafkaAdminClient]:
    from kafka import KafkaAdminClient

    with _open(KafkaAdminClient, client_options(kafka)) as client:
        yield client


@contextmanager
def consumer(kafka: Kafka, **options: Any) -> Iterator[KafkaConsumer]:
    """Without a group, unless `options` name one; nothing is committed by itself."""
    from kafka import KafkaConsumer

    own = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": FETCH_BYTES,
    }
    with _open(KafkaConsumer, client_options(kafka) | own | options) as client:
        yield client


@contextmanager
def producer(kafka: Kafka, largest: int) -> Iterator[KafkaProducer]:
    """Idempotent, acknowledged by all replicas in sync; messages of `largest` bytes."""
    from kafka import KafkaProducer

    own = {
        "acks": "all",
        "enable_idempotence": True,
        "max_request_size": largest + 64 * 2**10,
        "linger_ms": 20,  # larger batches: a command is in no hurry for a single one
        "max_block_ms": int(kafka.timeout_seconds * 1000),
        "delivery_timeout_ms": 60_000,
        "request_timeout_ms": 20_000,
    }
    with _open(KafkaProducer, client_options(kafka) | own, timeout=0) as client:
        yield client


def partitions_of(client: Any, topics: Iterable[str]) -> list[Any]:
    """The partitions of topics, in order. Raises `Failed` for a topic that is not there."""
    from kafka import TopicPartition

    found = []
    for topic in topics:
        known = client.partitions_for_topic(topic)
        if not known:
            raise Failed(f"there is no topic {topic}; `ragmeter kafka init` makes it")
        found += [TopicPartition(topic, number) for number in sorted(known)]
    return found
