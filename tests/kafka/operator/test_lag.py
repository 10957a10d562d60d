"""Whom `ragmeter kafka lag` asks, while the group's coordinator is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka.errors import NotCoordinatorError

from ragmeter.config.kafka import KafkaSettings
from ragmeter.kafka.operator import administration


def test_a_group_that_moves_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[KafkaSettings] = []

    class Moving:
        def list_group_offsets(self, group: str) -> dict[str, dict[str, int]]:
            if len(clients) != 3:
                raise NotCoordinatorError
            return {group: {"here": 1}}

    @contextmanager
    def admin(kafka: KafkaSettings) -> Iterator[Moving]:
        clients.append(kafka)
        yield Moving()

    monkeypatch.setattr(administration, "admin", admin)
    assert administration._committed_offsets(KafkaSettings()) == {"here": 1}
    assert len(clients) == 3
    with pytest.raises(NotCoordinatorError):
        administration._committed_offsets(KafkaSettings(timeout_seconds=1))
