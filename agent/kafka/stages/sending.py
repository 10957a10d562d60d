"""Sends that are awaited until the broker has them, and the topic of dead letters."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

import faust
from aiokafka.errors import MessageSizeTooLargeError
from faust.exceptions import ProducerSendError
from faust.types import EventT, RecordMetadata, TopicT

from agent.kafka.messages.encodings import HEADER
from agent.kafka.stages.preparing import Preparing
from agent.sources.dead_letters import told

__all__ = ["DeadTopic", "RawTopic", "deliver", "raw_topic"]

log = logging.getLogger("ragmeter.kafka")

MAX_ERROR = 500  # bytes of a header
NOTHING = b""  # aiokafka sends no record without a key and a value


class RawTopic(faust.Topic):
    """Of bytes. Sends at once: what Faust does around a send costs more than the send."""

    async def send(  # type: ignore[override]
        self,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> Awaitable[RecordMetadata]:
        producer = await self._get_producer()
        name = self.get_topic_name()
        return await producer.send(name, key, value, partition, None, dict(headers or {}))


def raw_topic(app: faust.App, name: str) -> TopicT:
    """Keys and values as bytes: a typed topic acknowledges what it cannot decode."""
    return app.topic(
        name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )


async def deliver(
    topic: TopicT,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, bytes] | None = None,
    partition: int | None = None,
) -> None:
    """Returns when all replicas in sync have it; raises what the producer does."""
    try:
        sent = await topic.send(
            key=key, value=value, headers=dict(headers or {}), partition=partition
        )
    except ProducerSendError as error:
        # what is too large for the client itself is wrapped, what is for the broker is not
        if isinstance(error.__cause__, MessageSizeTooLargeError):
            raise error.__cause__ from None
        raise
    await sent


class DeadTopic:
    """Messages that cannot be read go there as they came, with headers that say why and whence.

    Under any setting of privacy (`preparing`) only the headers do, as in the file of the embedded
    agent: what cannot be read cannot be redacted for sure, and this topic is kept for longer.
    """

    def __init__(self, topic: TopicT, preparing: Preparing) -> None:
        self._topic = topic
        self._preparing = preparing

    async def send(
        self, event: EventT[Any], reason: str, errors: tuple[tuple[str, str], ...]
    ) -> None:
        message = event.message
        said = {
            "topic": message.topic.encode(),
            "partition": b"%d" % message.partition,
            "offset": b"%d" % message.offset,
            # of the delivery to this topic: `ragmeter kafka redrive` counts on
            "attempt": _attempt(message.headers),
        }
        if HEADER in (found := dict(message.headers or ())):
            said[HEADER] = found[HEADER]
        await self.put(message.key, message.value, reason, errors, said)

    async def put(
        self,
        key: bytes | None,
        value: bytes | None,
        reason: str,
        errors: tuple[tuple[str, str], ...],
        said: Mapping[str, bytes],
    ) -> None:
        """The same for what is no message of its own; `said` are headers."""
        text = json.dumps(told(errors, self._preparing.redactor, self._preparing.content))
        headers = {
            "reason": reason.encode(),
            "error": text.encode("utf-8", "replace")[:MAX_ERROR],
            **said,
        }
        try:
            if self._preparing.keeps_raw:
                await deliver(self._topic, key, value, headers)
            else:
                await deliver(self._topic, None, NOTHING, {**headers, "truncated": b"1"})
        except MessageSizeTooLargeError:
            # it must not stop the partition for ever: where it lies is said
            await deliver(self._topic, None, NOTHING, {**headers, "truncated": b"1"})
        where = b"/".join(said[name] for name in ("topic", "partition", "offset")).decode()
        log.warning("%s is a dead letter: %s", where, reason)


def _attempt(headers: Any) -> bytes:
    found = dict(headers or {}).get("attempt", b"0")
    try:
        return b"%d" % (int(found) + 1)
    except (TypeError, ValueError):
        return b"1"
