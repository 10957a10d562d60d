"""Each test takes topics and a group of its own on the broker that all share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import AgentSettings
from ragmeter.config.settings import Settings

from tests.kafka.place import Place
from tests.kafka_server import KafkaServer


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
        return AgentSettings.model_validate({"kafka": tree | changes})

    return make


@pytest.fixture
def place(broker: KafkaServer, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)
