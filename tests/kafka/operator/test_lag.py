"""Whom `ragmeter kafka lag` asks, while the group's coordinator is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.errors import NotCoordinatorError
from ragmeter.config.kafka import KafkaSettings
from ragmeter.kafka.operator import clients


def test_a_group_that_moves_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[KafkaSettings] = []

    class Moving:
        def list_group_offsets(self, group: str) -> dict[str, dict[str, int]]:
            if len(opened) != 3:
                raise NotCoordinatorError
            return {group: {"here": 1}}

    @contextmanager
    def admin(kafka: KafkaSettings) -> Iterator[Moving]:
        opened.append(kafka)
        yield Moving()

    def offsets(client: Any) -> Any:
        return client.list_group_offsets("group")["group"]

    monkeypatch.setattr(clients, "admin", admin)
    assert clients.ask(KafkaSettings(), offsets) == {"here": 1}
    assert len(opened) == 3
    with pytest.raises(NotCoordinatorError):
        clients.ask(KafkaSettings(), offsets, seconds=1)
