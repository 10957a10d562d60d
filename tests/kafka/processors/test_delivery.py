"""What is sent: the errors of the client as they are, and dead letters that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from faust.exceptions import ProducerSendError

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer, deliver


class Topic:
    """As aiokafka: nothing without key and value, nothing too large for the client (at once, and
    wrapped by Faust) or for the broker (later)."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None, dict[str, bytes]]] = []

    async def send(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Mapping[str, bytes],
        partition: int | None,
    ) -> asyncio.Future[None]:
        assert key is not None or value is not None
        if value == b"huge":
            raise ProducerSendError("Error while sending") from MessageSizeTooLargeError()
        if value == b"closed":
            raise ProducerSendError("Error while sending") from KafkaTimeoutError()
        future = asyncio.get_running_loop().create_future()
        if value == b"large":
            future.set_exception(MessageSizeTooLargeError())
        else:
            self.sent.append((key, value, dict(headers)))
            future.set_result(None)
        return future


class Message:
    topic, partition, offset, key, headers = "rag.traces", 3, 17, None, ()

    def __init__(self, value: bytes) -> None:
        self.value = value


class Event:
    def __init__(self, value: bytes) -> None:
        self.message = Message(value)


def bury(value: bytes, **privacy: Any) -> Topic:
    topic, event = Topic(), Event(value)
    raw: Any = topic
    settings = Settings.model_validate({"privacy": privacy})
    dead = DeadLetterTopic(raw, TracePreparer(settings, Counters()))
    read: Any = event
    asyncio.run(dead.send(read, "not_json", (("", "no"),)))
    return topic


@pytest.mark.parametrize("value", [b"huge", b"large"])
def test_too_large_is_told_as_such(value: bytes) -> None:
    topic: Any = Topic()
    with pytest.raises(MessageSizeTooLargeError):
        asyncio.run(deliver(topic, None, value))


def test_another_error_stays_what_it_is() -> None:
    topic: Any = Topic()
    with pytest.raises(ProducerSendError):
        asyncio.run(deliver(topic, None, b"closed"))


def test_a_letter_goes_as_it_came() -> None:
    ((key, value, headers),) = bury(b"{").sent
    assert (key, value) == (None, b"{")
    assert headers["reason"] == b"not_json"
    assert "truncated" not in headers


@pytest.mark.parametrize("value", [b"huge", b"large"])
def test_of_a_letter_that_is_too_large_its_place_goes(value: bytes) -> None:
    ((_, body, headers),) = bury(value).sent
    assert body == b""
    assert headers["truncated"] == b"1"
    assert (headers["topic"], headers["partition"], headers["offset"]) == (
        b"rag.traces",
        b"3",
        b"17",
    )


@pytest.mark.parametrize("privacy", [{"content": "none"}, {"redact": ["email"]}])
def test_of_a_letter_that_may_not_be_kept_its_place_goes(privacy: dict[str, Any]) -> None:
    ((_, body, headers),) = bury(b"{", **privacy).sent
    assert body == b""
    assert headers["truncated"] == b"1"
