"""Topics and workers of one test on the broker that all tests share."""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.kafka.operator.administration import provision
from ragmeter.kafka.operator.clients import guarded

from tests.kafka.cluster import SETTINGS, Worker
from tests.kafka_server import KafkaServer
from tests.waiting import PATIENCE, until

__all__ = ["Place", "page"]

PARTITIONS = 2
SESSION_SECONDS = 6  # the least: what was killed is replaced soon


class Place:
    """The topics are made unless `made` is False. `kafka` are keys of that section."""

    def __init__(
        self, server: KafkaServer, folder: Path, *, made: bool = True, **kafka: Any
    ) -> None:
        self.server = server
        self.folder = folder
        name = f"t{uuid.uuid4().hex[:8]}"
        self.kafka: dict[str, Any] = {
            "bootstrap_servers": [server.bootstrap],
            "group": name,
            "topics": {"prefix": f"{name}."},
            "partitions": PARTITIONS,
            "session_seconds": SESSION_SECONDS,
            **kafka,
        }
        self.partitions: int = self.kafka["partitions"]
        self.settings = AgentSettings.model_validate({"kafka": self.kafka})
        self.traces = self.settings.kafka.topics.traces
        self.scores = self.settings.kafka.topics.scores
        if made:
            self.make()

    def make(self) -> None:
        with guarded(self.settings.kafka):
            provision(self.settings, PARTS)

    def worker(
        self,
        name: str = "a",
        odd: str = "",
        settings: Mapping[str, Any] | None = None,
        program: Sequence[str] = ("-m", "ragmeter"),
        **kafka: Any,
    ) -> Worker:
        """`odd` are names of `tests.kafka.odd_worker`, `settings` are added to those of all."""
        if odd:
            program = ("-m", "tests.kafka.odd_worker", odd)
        merged = {**SETTINGS, **(settings or {})}
        return Worker(
            self.server, self.folder, name, settings=merged, program=program, **self.kafka | kafka
        )

    def produce(self, lines: Sequence[bytes], topic: str | None = None) -> None:
        """To the topic's partitions in turn."""
        topic = topic or self.traces
        producer = KafkaProducer(bootstrap_servers=self.server.bootstrap, acks="all")
        partitions = len(producer.partitions_for(topic))
        for number, line in enumerate(lines):
            producer.send(topic, line, partition=number % partitions)
        producer.flush(30)
        producer.close(timeout=PATIENCE)

    def topics(self) -> set[str]:
        """Those of this place."""
        client = KafkaAdminClient(bootstrap_servers=self.server.bootstrap)
        found = client.list_topics()
        client.close()
        return {name for name in found if name.startswith(self.settings.kafka.group)}

    def letters(self) -> list[Any]:
        return self.records(self.settings.kafka.topics.dead)

    def records(self, topic: str) -> list[Any]:
        """All that is in a topic."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.server.bootstrap, isolation_level="read_committed"
        )
        numbers = sorted(consumer.partitions_for_topic(topic))
        partitions = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []

        def whole() -> bool:
            for records in consumer.poll(timeout_ms=100).values():
                found.extend(records)
            return all(consumer.position(partition) >= end for partition, end in ends.items())

        until(whole)
        consumer.close()
        return found


def page(worker: Worker, path: str) -> tuple[int, str]:
    """Status and text, of errors too; 0 while nobody answers."""
    try:
        url = f"http://127.0.0.1:{worker.port}{path}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
