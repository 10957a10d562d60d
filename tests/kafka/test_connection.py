"""What the brokers tell of their topics when they are reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.config.settings import Settings
from ragmeter.kafka.broker_probe import probe_brokers
from ragmeter.kafka.operator.administration import provision
from ragmeter.kafka.operator.clients import guarded
from ragmeter.kafka.topics import find_topic_problem

pytestmark = pytest.mark.real


def test_topics_and_their_partitions_are_known(settings_of: Callable[..., Settings]) -> None:
    settings = settings_of(partitions=3)
    assert "there is no topic" in find_topic_problem(
        settings, PARTS, asyncio.run(probe_brokers(settings.kafka))
    )
    with guarded(settings.kafka):
        provision(settings, PARTS)
    found = asyncio.run(probe_brokers(settings.kafka))
    assert found[settings.kafka.topics.scores] == 3
    assert found[settings.kafka.topics.dead] == 1
    assert find_topic_problem(settings, PARTS, found) == ""
