"""What the brokers tell of their topics when they are reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent.config import Settings
from agent.kafka.operator.clients import guarded
from agent.kafka.operator.provisioning import provision
from agent.kafka.reach import reach
from agent.kafka.topics import amiss

pytestmark = pytest.mark.real


def test_topics_and_their_partitions_are_known(settings_of: Callable[..., Settings]) -> None:
    settings = settings_of(partitions=3)
    assert "there is no topic" in amiss(settings, asyncio.run(reach(settings.kafka)))
    with guarded(settings.kafka):
        provision(settings)
    found = asyncio.run(reach(settings.kafka))
    assert found[settings.kafka.topics.scores] == 3
    assert found[settings.kafka.topics.dead] == 1
    assert amiss(settings, found) == ""
