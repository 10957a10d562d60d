"""What all tests share: how patient the property tests are, and a real Kafka."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ragmeter.metrics.custom import CUSTOM_METRICS
from ragmeter.metrics.registry import METRICS
from tests.kafka_server import KafkaServer, kafka_server

# How long an example takes says something about the machine and nothing about the property; what
# hangs is ended by the time limit of a test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


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
def registry() -> Iterator[None]:
    """Remove the metrics that a test installs, and the module `mine` that it imports."""
    before, mine = dict(METRICS), list(CUSTOM_METRICS)
    yield
    METRICS.clear()
    METRICS.update(before)
    CUSTOM_METRICS[:] = mine
    sys.modules.pop("mine", None)
