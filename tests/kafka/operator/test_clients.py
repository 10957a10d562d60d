"""The clients of the commands: what a block raises is what the command says."""

from __future__ import annotations

import pytest
from ragmeter.kafka.operator.clients import producer

from tests.kafka.place import Place

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_an_error_beside_messages_that_wait_is_not_replaced(place: Place) -> None:
    def fail() -> None:
        with producer(place.settings.kafka, 10_000, linger_ms=30_000) as client:
            client.send(place.traces, b"waits for others")
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()
