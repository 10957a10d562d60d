"""The topic of the dead letters, read by an operator: what is in it, and what was sent again.

Beside the letters it holds *receipts* of `redrive`: before a batch goes out an intent, behind it
that it is done, each naming the letters by their offsets. They are in the same topic because they
then live as long as the letters do. A letter is a record with a `reason` header (written by
`agent.kafka.stages.sending`), a receipt one with a `redrive` header.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.kafka.operator.clients import Failed, consumer, partitions_of
from agent.settings.kafka import Kafka

__all__ = ["DONE", "INTENT", "RECEIPT", "Contents", "Letter", "read_letters", "records_between"]

RECEIPT, INTENT, DONE = "redrive", b"intent", b"done"
QUIET_SECONDS = 30.0  # without a record although there are some: the broker has gone
MOST_LETTERS = 1_000_000  # about 300 MB of what is kept of each


@dataclass(frozen=True, slots=True)
class Letter:
    """`topic`, `partition`, `position`: where the message was read that became this letter."""

    offset: int
    time: float
    reason: str
    error: str
    topic: str
    partition: int
    position: int
    attempt: int
    bytes: int
    truncated: bool

    @property
    def source(self) -> str:
        return f"{self.topic}/{self.partition}/{self.position}"


@dataclass(slots=True)
class Contents:
    """`sent`: offsets of letters that were sent again. `begun`: of letters that a redrive was about
    to send when it ended, with the time it began (ms): they may have been sent."""

    letters: list[Letter] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)
    strangers: int = 0


def read_letters(kafka: Kafka) -> Contents:
    """The whole topic up to now, without the bodies. Raises `Failed`."""
    found = Contents()
    with consumer(kafka) as reader:
        part = the_partition(reader, kafka)
        end = reader.end_offsets([part])[part]
        for record in records_between(reader, part, 0, end):
            headers = headers_of(record)
            if RECEIPT in headers:
                _receipt(found, headers[RECEIPT], record.value)
            elif (letter := letter_of(record, headers)) is not None:
                found.letters.append(letter)
            else:
                found.strangers += 1
            if len(found.letters) > MOST_LETTERS:
                raise Failed(f"more than {MOST_LETTERS} dead letters; is the producer sound?")
    return found


def the_partition(reader: Any, kafka: Kafka) -> Any:
    parts = partitions_of(reader, [kafka.topics.dead])
    if len(parts) > 1:
        raise Failed(f"{kafka.topics.dead} has {len(parts)} partitions; one is needed")
    return parts[0]


def records_between(reader: Any, part: Any, start: int, end: int) -> Iterator[Any]:
    """What is there of the offsets from `start` to before `end`."""
    reader.assign([part])
    reader.seek(part, max(start, reader.beginning_offsets([part])[part]))
    heard = time.monotonic()
    while reader.position(part) < end:
        for record in reader.poll(timeout_ms=500).get(part, ()):
            heard = time.monotonic()
            if record.offset < end:
                yield record
        if time.monotonic() - heard > QUIET_SECONDS:
            raise Failed(f"{part.topic}: nothing more was read for {QUIET_SECONDS:g} s")


def headers_of(record: Any) -> dict[str, bytes]:
    return {name: value or b"" for name, value in record.headers}


def letter_of(record: Any, headers: dict[str, bytes]) -> Letter | None:
    """None for a record that no worker wrote."""
    try:
        return Letter(
            record.offset,
            record.timestamp / 1000,
            headers["reason"].decode("utf-8", "replace"),
            headers.get("error", b"").decode("utf-8", "replace"),
            headers["topic"].decode(),
            int(headers["partition"]),
            int(headers["offset"]),
            int(headers.get("attempt", b"1")),
            len(record.value or b""),
            "truncated" in headers,
        )
    except (KeyError, ValueError):  # a UnicodeDecodeError is one
        return None


def _receipt(found: Contents, kind: bytes, value: bytes | None) -> None:
    try:
        body = json.loads(value or b"")
        offsets, at = [int(one) for one in body["letters"]], int(body["at"])
    except (ValueError, TypeError, KeyError):
        found.strangers += 1
        return
    for offset in offsets:
        if kind == DONE:
            found.sent.add(offset)
            found.begun.pop(offset, None)
        elif offset not in found.sent:
            found.begun.setdefault(offset, at)
