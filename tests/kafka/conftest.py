"""One real broker for all tests of this folder; each takes topics and a group of its own."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import Settings
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer, kafka_server


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """With the listeners of all protocols, for one of them costs as much to start as all."""
    with kafka_server(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        yield server


@pytest.fixture
def swept() -> Iterator[None]:
    """For tests in which brokers go down: kafka-python leaves sockets open whose broker was down
    when they were to connect. They are found here, and not in whatever test comes next."""
    yield
    gc.collect()


@pytest.fixture
def settings_of(broker: KafkaServer) -> Callable[..., Settings]:
    """Settings with topics that no other test knows; the arguments are keys of `kafka:`."""

    def make(**changes: Any) -> Settings:
        name = f"t{uuid.uuid4().hex[:8]}"
        tree: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "group": name,
            "topics": {"prefix": f"{name}."},
            "partitions": 2,
        }
        return Settings.model_validate({"kafka": tree | changes})

    return make


@pytest.fixture
def place(broker: KafkaServer, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)
