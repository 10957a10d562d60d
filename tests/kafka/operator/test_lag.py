"""Whom `ragmeter kafka lag` asks, while the group's coordinator is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka.errors import NotCoordinatorError

from agent.kafka.operator import lag
from agent.settings.kafka import Kafka


def test_a_group_that_moves_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[Kafka] = []

    class Moving:
        def list_group_offsets(self, group: str) -> dict[str, dict[str, int]]:
            if len(clients) != 3:
                raise NotCoordinatorError
            return {group: {"here": 1}}

    @contextmanager
    def admin(kafka: Kafka) -> Iterator[Moving]:
        clients.append(kafka)
        yield Moving()

    monkeypatch.setattr(lag, "admin", admin)
    assert lag._committed(Kafka()) == {"here": 1}
    assert len(clients) == 3
    with pytest.raises(NotCoordinatorError):
        lag._committed(Kafka(timeout_seconds=1))
