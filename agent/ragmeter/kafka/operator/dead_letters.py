"""Read the topic of the dead letters, and send letters to their source topic again, each once.

A letter is a record with a `reason` header (`ragmeter.kafka.processors.delivery`). Between letters
lie the receipts of `redrive`, with a `redrive` header: each names the letters that were sent in its
transaction. They share the topic because they then live as long as the letters. Opening the
transactional id fences a redrive that still runs, and ends what it had begun; only then are the
receipts read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.kafka import KafkaSettings, KafkaTopics
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator.clients import (
    SEND_SECONDS,
    KafkaCommandError,
    consumer,
    partitions_of,
    producer,
    records_between,
)
from ragmeter.kafka.span_records import ENCODING_HEADER

# Letters of a transaction, and their bytes. A transaction holds back the traces of all producers
# until it ends, or for `_TRANSACTION_MS` where the redrive dies within it.
BATCH = 100
_BATCH_BYTES = 16 * 2**20
_TRANSACTION_MS = 20_000
_RECEIPT = "redrive"
DONE = b"done"
_MOST_LETTERS = 1_000_000  # about 300 MB in memory


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
    """Letters, the offsets of those that were sent again, and a count of other records."""

    letters: list[DeadLetter] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    strangers: int = 0

    def add_receipt(self, value: bytes | None) -> None:
        """Apply a receipt of letters that were sent again."""
        try:
            offsets = [int(offset) for offset in json.loads(value or b"")["letters"]]
        except (ValueError, TypeError, KeyError):
            self.strangers += 1
            return
        self.sent.update(offsets)


@dataclass(slots=True)
class RedriveResult:
    """Counts of letters: sent, and not sent by cause.

    `reasons` counts those sent, or to be sent by a dry run, by the reason of the letter.
    """

    sent: int = 0
    left: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def dead_letter_partition(reader: Any, kafka: KafkaSettings) -> Any:
    """Return the only partition of the topic; raise `KafkaCommandError` for more or none."""
    partitions = partitions_of(reader, kafka, [kafka.topics.dead])
    if len(partitions) > 1:
        raise KafkaCommandError(
            f"{kafka.topics.dead} has {len(partitions)} partitions; one is needed"
        )
    return partitions[0]


def read_letter(kafka: KafkaSettings, offset: int) -> Any:
    """Return one record of the topic; raise `KafkaCommandError` if it does not exist."""
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        first = reader.beginning_offsets([part])[part]
        end = reader.end_offsets([part])[part]
        record = next(records_between(reader, part, offset, end), None)
    if record is None or record.offset != offset:
        held = f"it has {first} to {end - 1}" if first < end else "it is empty"
        raise KafkaCommandError(f"{kafka.topics.dead} has no record at offset {offset}; {held}")
    return record


def read_letters(kafka: KafkaSettings) -> DeadLetterContents:
    """Read the whole topic up to now, without the bodies, and each letter once.

    A worker that begins again writes the letters of some messages of others again.

    Raises:
        KafkaCommandError: The topic is not as it should be.
        KafkaFailed: It cannot be read.
    """
    contents = DeadLetterContents()
    known: set[str] = set()  # sources of the letters of messages that others have written
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        end = reader.end_offsets([part])[part]
        for record in records_between(reader, part, 0, end):
            headers = {name: value or b"" for name, value in record.headers}
            if headers.get(_RECEIPT) == DONE:
                contents.add_receipt(record.value)
            elif (letter := _parse_letter(record, headers)) is not None:
                if letter.source not in known:
                    contents.letters.append(letter)
                if letter.topic in kafka.topics.written_by_others:
                    known.add(letter.source)
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
) -> RedriveResult:
    """Send letters that were not sent yet to their source topic, oldest first.

    Args:
        settings: Brokers and topics.
        say: Prints a line of progress.
        reason: Of the letters to send; None for all.

    Raises:
        KafkaCommandError: Another redrive began meanwhile.
        KafkaFailed: The topic cannot be read.
    """
    from kafka.errors import KafkaError

    kafka = settings.kafka
    result = RedriveResult()
    own = {"transactional_id": f"{kafka.group}-redrive", "transaction_timeout_ms": _TRANSACTION_MS}
    with producer(kafka, settings.limits.trace_bytes, **own) as client:
        try:
            client.init_transactions()
            pending = _pending(settings, read_letters(kafka), result, reason)
            for batch in _batches(pending):
                _send(settings, client, batch, result)
                say(f"{result.sent} of {len(pending)} sent")
        except KafkaError as error:
            if "ProducerFenced" not in repr(error):  # it may be within another one
                raise
            raise KafkaCommandError("another redrive was begun, and goes on instead") from None
    return result


def _batches(letters: list[DeadLetter]) -> Iterator[list[DeadLetter]]:
    batch: list[DeadLetter] = []
    for letter in letters:
        size = sum(one.bytes for one in batch) + letter.bytes
        if batch and (len(batch) >= BATCH or size > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(letter)
    if batch:
        yield batch


def _pending(
    settings: Settings,
    contents: DeadLetterContents,
    result: RedriveResult,
    reason: str | None,
) -> list[DeadLetter]:
    pending = []
    for letter in contents.letters:
        if letter.offset in contents.sent or (reason is not None and letter.reason != reason):
            continue
        if obstacle := _obstacle(letter, settings.kafka.topics):
            result.left[obstacle] += 1
        else:
            pending.append(letter)
    return pending


def _obstacle(letter: DeadLetter, topics: KafkaTopics) -> str:
    """Return why a letter cannot be sent again, or ""."""
    if letter.truncated:
        return "only their place is known (truncated)"
    if letter.topic == topics.spans:
        return "spans: their trace was closed without them; the sender has to send them again"
    if letter.topic not in (*topics.written_by_others, topics.scores):
        return "of a topic that is not one of these settings"
    return ""


def _send(settings: Settings, client: Any, batch: list[DeadLetter], result: RedriveResult) -> None:
    by_offset = {letter.offset: letter for letter in batch}
    with consumer(settings.kafka) as reader:
        part = dead_letter_partition(reader, settings.kafka)
        between = records_between(reader, part, batch[0].offset, batch[-1].offset + 1)
        records = [record for record in between if record.offset in by_offset]
    sent = [by_offset[record.offset] for record in records]
    client.begin_transaction()
    futures = []
    for letter, record in zip(sent, records, strict=True):
        headers = [
            ("attempt", b"%d" % letter.attempt),  # past ones: a worker adds its own
            ("origin", letter.source.encode()),
            ("letter", b"%d" % letter.offset),
            *(header for header in record.headers if header[0] == ENCODING_HEADER),
        ]
        futures.append(client.send(letter.topic, record.value, record.key, headers))
    receipt = json.dumps({"letters": [letter.offset for letter in sent]}).encode()
    futures.append(client.send(settings.kafka.topics.dead, receipt, headers=[(_RECEIPT, DONE)]))
    for future in futures:
        future.get(timeout=SEND_SECONDS)
    client.commit_transaction()
    result.sent += len(sent)
    result.reasons.update(letter.reason for letter in sent)
