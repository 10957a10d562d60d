"""Read the topic of the dead letters, and send letters to their source topic again, each once.

A letter is a record with a `reason` header (`ragmeter.kafka.processors.delivery`). Between letters
lie the receipts of `redrive`, with a `redrive` header: an intent before each batch, and its
completion behind it, each naming the letters by their offsets. They share the topic because they
then live as long as the letters.

There are no transactions: an unfinished one would hold back the traces of all producers for a
minute. A redrive that finds an intent without its completion searches the source topic, from that
time on, for messages that name its letters in the header `letter`. A consumer group keeps a second
redrive out. A redrive that stalls for longer than the group waits, and wakes up within a batch,
could still send that batch beside its successor; the repeated trace ids are then counted as
duplicates, and repeated labels twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.kafka import KafkaSettings, KafkaTopics
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator.clients import (
    SEND_SECONDS,
    KafkaCommandError,
    admin,
    consumer,
    partitions_of,
    producer,
    records_between,
)
from ragmeter.kafka.span_records import ENCODING_HEADER

BATCH = 100  # letters between two receipts: what has to be searched for after a crash
_RECEIPT, _INTENT, DONE = "redrive", b"intent", b"done"
_MOST_LETTERS = 1_000_000  # about 300 MB in memory
_SESSION_MS = 10_000  # after a crash the next redrive is kept out so long
_JOIN_SECONDS = 30.0
# a broker's clock may be behind ours by this much; few records are searched in vain
_SKEW_MS = 600_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter without its body.

    `topic`, `partition` and `position` are the source of the message that became this letter, for
    the `attempt`-th time; `time` is in Unix seconds; `truncated` means that the body was left out.
    """

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
        """Topic, partition and offset of the message, as one string."""
        return f"{self.topic}/{self.partition}/{self.position}"


@dataclass(slots=True)
class DeadLetterContents:
    """Letters, the offsets of those that were sent again, and a count of other records.

    `begun` are offsets of letters that an interrupted redrive may have sent, with the time at which
    it began in Unix milliseconds.
    """

    letters: list[DeadLetter] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)
    strangers: int = 0

    def add_receipt(self, kind: bytes, value: bytes | None) -> None:
        """Apply an intent or a completion."""
        try:
            body = json.loads(value or b"")
            offsets, at = [int(offset) for offset in body["letters"]], int(body["at"])
        except (ValueError, TypeError, KeyError):
            self.strangers += 1
            return
        for offset in offsets:
            if kind == DONE:
                self.sent.add(offset)
                self.begun.pop(offset, None)
            elif offset not in self.sent:
                self.begun.setdefault(offset, at)


@dataclass(slots=True)
class RedriveResult:
    """Counts of letters: sent, `already` sent by an interrupted redrive, and not sent by cause.

    `reasons` counts those sent, or to be sent by a dry run, by the reason of the letter.
    """

    sent: int = 0
    already: int = 0
    left: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def dead_letter_partition(reader: Any, kafka: KafkaSettings) -> Any:
    """Return the only partition of the topic; raise `KafkaCommandError` for more or none."""
    partitions = partitions_of(reader, [kafka.topics.dead])
    if len(partitions) > 1:
        raise KafkaCommandError(
            f"{kafka.topics.dead} has {len(partitions)} partitions; one is needed"
        )
    return partitions[0]


def read_letter(kafka: KafkaSettings, offset: int) -> Any:
    """Return one record of the topic; raise `KafkaCommandError` if it does not exist."""
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        first, end = reader.beginning_offsets([part])[part], reader.end_offsets([part])[part]
        record = next(records_between(reader, part, offset, end), None)
    if record is None or record.offset != offset:
        raise KafkaCommandError(
            f"{kafka.topics.dead} has no record at offset {offset}; it has {first} to {end - 1}"
        )
    return record


def read_letters(kafka: KafkaSettings) -> DeadLetterContents:
    """Read the whole topic up to now, without the bodies; raise `KafkaCommandError`."""
    contents = DeadLetterContents()
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        end = reader.end_offsets([part])[part]
        for record in records_between(reader, part, 0, end):
            headers = {name: value or b"" for name, value in record.headers}
            if _RECEIPT in headers:
                contents.add_receipt(headers[_RECEIPT], record.value)
            elif (letter := _parse_letter(record, headers)) is not None:
                contents.letters.append(letter)
            else:
                contents.strangers += 1
            if len(contents.letters) > _MOST_LETTERS:
                raise KafkaCommandError(
                    f"more than {_MOST_LETTERS} dead letters; is the producer sound?"
                )
    return contents


def _parse_letter(record: Any, headers: dict[str, bytes]) -> DeadLetter | None:
    """None for a record that no worker wrote."""
    try:
        return DeadLetter(
            offset=record.offset,
            time=record.timestamp / 1000,
            reason=headers["reason"].decode("utf-8", "replace"),
            error=headers.get("error", b"").decode("utf-8", "replace"),
            topic=headers["topic"].decode(),
            partition=int(headers["partition"]),
            position=int(headers["offset"]),
            attempt=int(headers.get("attempt", b"1")),
            bytes=len(record.value or b""),
            truncated="truncated" in headers,
        )
    except (KeyError, ValueError):  # a UnicodeDecodeError is one
        return None


def redrive(
    settings: Settings,
    say: Callable[[str], None],
    *,
    reason: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> RedriveResult:
    """Send letters that were not sent yet to their source topic, oldest first.

    `say` prints a line of progress; `reason` and `limit` select letters; a dry run only counts.
    Raises `KafkaCommandError` if another redrive is running, or the topic cannot be read.
    """
    result = RedriveResult()
    if dry_run:
        for letter in _pending(settings, read_letters(settings.kafka), result, reason, limit):
            result.reasons[letter.reason] += 1
        return result
    with _sole_member(settings), producer(settings.kafka, settings.limits.trace_bytes) as client:
        contents = read_letters(settings.kafka)
        _settle_begun(settings, client, contents, result)
        pending = _pending(settings, contents, result, reason, limit)
        for start in range(0, len(pending), BATCH):
            _send(settings, client, pending[start : start + BATCH], result)
            say(f"{result.sent} of {len(pending)} sent")
    return result


def _pending(
    settings: Settings,
    contents: DeadLetterContents,
    result: RedriveResult,
    reason: str | None,
    limit: int | None,
) -> list[DeadLetter]:
    pending = []
    for letter in contents.letters:
        if letter.offset in contents.sent or (reason is not None and letter.reason != reason):
            continue
        if obstacle := _obstacle(letter, settings.kafka.topics):
            result.left[obstacle] += 1
        else:
            pending.append(letter)
    return pending[:limit]


def _obstacle(letter: DeadLetter, topics: KafkaTopics) -> str:
    """Return why a letter cannot be sent again, or "".

    Behind the traces, a guard against repetitions (`ragmeter.kafka.state.duplicates`) drops what
    comes out of order: the letter would be lost although it was sent.
    """
    if letter.truncated:
        return "only their place is known (truncated)"
    if letter.topic == topics.spans:
        return "spans: their trace was closed without them; the sender has to send them again"
    if letter.topic == topics.scores:
        return "scores: what came after them was counted; their traces have to be sent again"
    if letter.topic not in (topics.traces, topics.feedback):
        return "of a topic that is not one of these settings"
    return ""


@contextmanager
def _sole_member(settings: Settings) -> Iterator[None]:
    """Be the only member of the consumer group of redrives."""
    kafka = settings.kafka
    group = f"{kafka.group}-redrive"
    other = f"another redrive is running, or ended less than {_SESSION_MS // 1000} s ago"
    with admin(kafka) as client:
        try:
            members = client.describe_groups([group])[group].get("members", ())
        except Exception as error:
            if type(error).__name__ not in ("CoordinatorNotAvailableError", "GroupIdNotFoundError"):
                raise
            members = ()  # a new cluster, or a new group
    if members:
        raise KafkaCommandError(other)
    options = {"group_id": group, "session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": 2_000}
    with consumer(kafka, **options, max_poll_interval_ms=3_600_000) as member:
        part = dead_letter_partition(member, kafka)
        member.subscribe([part.topic])
        deadline = time.monotonic() + _JOIN_SECONDS
        while not member.assignment():
            member.poll(timeout_ms=200, max_records=1)
            if time.monotonic() > deadline:
                raise KafkaCommandError(other)
        yield


def _settle_begun(
    settings: Settings, client: Any, contents: DeadLetterContents, result: RedriveResult
) -> None:
    """Search the source topics for letters that an interrupted redrive had begun to send."""
    begun = {offset: at for offset, at in contents.begun.items() if offset not in contents.sent}
    if not begun:
        return
    topics = {letter.topic for letter in contents.letters if letter.offset in begun}
    since = min(begun.values()) - _SKEW_MS
    sent: set[int] = set()
    with consumer(settings.kafka) as reader:
        parts = partitions_of(reader, sorted(topics))
        ends = reader.end_offsets(parts)
        starts = reader.offsets_for_times(dict.fromkeys(parts, since))
        for part in parts:
            if starts[part] is None:
                continue
            for record in records_between(reader, part, starts[part].offset, ends[part]):
                for name, value in record.headers:
                    if name == "letter" and value.isdigit() and int(value) in begun:
                        sent.add(int(value))
    if sent:
        _write_receipt(settings, client, DONE, sorted(sent))
    contents.sent |= sent
    result.already += len(sent)


def _write_receipt(settings: Settings, client: Any, kind: bytes, letters: list[int]) -> None:
    body = json.dumps({"letters": letters, "at": int(time.time() * 1000)}).encode()
    headers = [(_RECEIPT, kind)]
    client.send(settings.kafka.topics.dead, body, headers=headers).get(timeout=SEND_SECONDS)


def _send(settings: Settings, client: Any, batch: list[DeadLetter], result: RedriveResult) -> None:
    by_offset = {letter.offset: letter for letter in batch}
    _write_receipt(settings, client, _INTENT, list(by_offset))
    futures, sent = [], []
    with consumer(settings.kafka) as reader:
        part = dead_letter_partition(reader, settings.kafka)
        for record in records_between(reader, part, batch[0].offset, batch[-1].offset + 1):
            letter = by_offset.get(record.offset)
            if letter is None:
                continue
            headers = [
                ("attempt", b"%d" % letter.attempt),  # past ones: a worker adds its own
                ("origin", letter.source.encode()),
                ("letter", b"%d" % letter.offset),
                *(header for header in record.headers if header[0] == ENCODING_HEADER),
            ]
            futures.append(client.send(letter.topic, record.value, record.key, headers))
            sent.append(letter)
    for future in futures:
        future.get(timeout=SEND_SECONDS)
    _write_receipt(settings, client, DONE, [letter.offset for letter in sent])
    result.sent += len(sent)
    result.reasons.update(letter.reason for letter in sent)
