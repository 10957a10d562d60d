"""List dead letters, and send them to their source topic again, each once.

The topic of the dead letters, read by an operator: what is in it, and what was sent again.

Beside the letters it holds *receipts* of `redrive`: before a batch goes out an intent, behind it
that it is done, each naming the letters by their offsets. They are in the same topic because they
then live as long as the letters do. A letter is a record with a `reason` header (written by
`ragmeter.kafka.processors.delivery`), a receipt one with a `redrive` header.

`ragmeter kafka dlq redrive`: dead letters back to where they came from, nothing twice.

Without transactions: an unfinished one would hold back the traces of all producers for a minute.
Instead every batch is noted in the topic of the dead letters before it goes out and when all of it
has been acknowledged (`ragmeter.kafka.operator.dead_letters`). Whoever finds a note without its end
looks in the source topic, from that time on, for what was sent: each message names its letter in
the header `letter`.

Membership of a consumer group keeps a second redrive out. A redrive that stalled for longer than
the group waits, and wakes up within a batch, could still send that batch beside its successor;
what it sends then carries trace ids that were counted, and is counted as a duplicate; labels that
were counted are repeated.
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
    KafkaCommandError,
    admin,
    consumer,
    dead_letter_partition,
    partitions_of,
    producer,
    records_between,
)
from ragmeter.kafka.span_records import ENCODING_HEADER

_RECEIPT, _INTENT, DONE = "redrive", b"intent", b"done"
_MOST_LETTERS = 1_000_000  # about 300 MB of what is kept of each


@dataclass(frozen=True, slots=True)
class DeadLetter:
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
class DeadLetterContents:
    """`sent`: offsets of letters that were sent again. `begun`: of letters that a redrive was about
    to send when it ended, with the time it began (ms): they may have been sent."""

    letters: list[DeadLetter] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)
    strangers: int = 0


def read_letters(kafka: KafkaSettings) -> DeadLetterContents:
    """The whole topic up to now, without the bodies. Raises `Failed`."""
    found = DeadLetterContents()
    with consumer(kafka) as reader:
        part = dead_letter_partition(reader, kafka)
        end = reader.end_offsets([part])[part]
        for record in records_between(reader, part, 0, end):
            headers = _headers_of(record)
            if _RECEIPT in headers:
                _receipt(found, headers[_RECEIPT], record.value)
            elif (letter := _letter_of(record, headers)) is not None:
                found.letters.append(letter)
            else:
                found.strangers += 1
            if len(found.letters) > _MOST_LETTERS:
                raise KafkaCommandError(
                    f"more than {_MOST_LETTERS} dead letters; is the producer sound?"
                )
    return found


def _headers_of(record: Any) -> dict[str, bytes]:
    return {name: value or b"" for name, value in record.headers}


def _letter_of(record: Any, headers: dict[str, bytes]) -> DeadLetter | None:
    """None for a record that no worker wrote."""
    try:
        return DeadLetter(
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


def _receipt(found: DeadLetterContents, kind: bytes, value: bytes | None) -> None:
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


BATCH = 100  # letters between two receipts: what a crash leaves to be looked for
_SESSION_MS = 10_000  # after a crash the next redrive is kept out so long
_JOIN_SECONDS = 30.0
_SEND_SECONDS = 70.0  # more than the producer itself tries for
# a broker's clock may be behind ours by this much; the records that are looked through are few
_SKEW_MS = 600_000


@dataclass(slots=True)
class RedriveResult:
    sent: int = 0
    already: int = 0
    """Found in the source topic: sent by a redrive that ended before it could say so."""
    left: Counter[str] = field(default_factory=Counter)
    """Not sent, by why."""
    reasons: Counter[str] = field(default_factory=Counter)


def redrive(
    settings: Settings,
    say: Callable[[str], None],
    *,
    reason: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> RedriveResult:
    """Sends what was not sent yet, oldest first. Raises `Failed`."""
    done = RedriveResult()
    if dry_run:
        for letter in _pending(settings, read_letters(settings.kafka), done, reason, limit):
            done.reasons[letter.reason] += 1
        return done
    with _sole_member(settings), producer(settings.kafka, settings.limits.trace_bytes) as client:
        contents = read_letters(settings.kafka)
        _find_begun(settings, client, contents, done)
        pending = _pending(settings, contents, done, reason, limit)
        for start in range(0, len(pending), BATCH):
            _send(settings, client, pending[start : start + BATCH], done)
            say(f"{done.sent} of {len(pending)} sent")
    return done


def _pending(
    settings: Settings,
    contents: DeadLetterContents,
    done: RedriveResult,
    reason: str | None,
    limit: int | None,
) -> list[DeadLetter]:
    found = []
    for letter in contents.letters:
        if letter.offset in contents.sent or (reason is not None and letter.reason != reason):
            continue
        if why := _why_not(letter, settings.kafka.topics):
            done.left[why] += 1
        else:
            found.append(letter)
    return found[:limit]


def _why_not(letter: DeadLetter, topics: KafkaTopics) -> str:
    """Why a letter cannot be sent again; "" if it can. Behind the traces a guard drops what comes
    out of its order (`ragmeter.kafka.state.duplicates`): it would be lost, and look sent."""
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
    """As the only member of the group of redrives."""
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


def _find_begun(
    settings: Settings, client: Any, contents: DeadLetterContents, done: RedriveResult
) -> None:
    """Settle what an earlier redrive had begun: what is found in the source topic was sent."""
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
        _note(settings, client, DONE, sorted(sent))
    contents.sent |= sent
    done.already += len(sent)


def _note(settings: Settings, client: Any, kind: bytes, letters: list[int]) -> None:
    body = json.dumps({"letters": letters, "at": int(time.time() * 1000)}).encode()
    headers = [(_RECEIPT, kind)]
    client.send(settings.kafka.topics.dead, body, headers=headers).get(timeout=_SEND_SECONDS)


def _send(settings: Settings, client: Any, batch: list[DeadLetter], done: RedriveResult) -> None:
    by_offset = {letter.offset: letter for letter in batch}
    _note(settings, client, _INTENT, list(by_offset))
    futures, sent = [], []
    with consumer(settings.kafka) as reader:
        part = dead_letter_partition(reader, settings.kafka)
        for record in records_between(reader, part, batch[0].offset, batch[-1].offset + 1):
            letter = by_offset.get(record.offset)
            if letter is None:
                continue
            headers = [
                ("attempt", b"%d" % letter.attempt),  # of those behind it: a worker adds its own
                ("origin", letter.source.encode()),
                ("letter", b"%d" % letter.offset),
                *(found for found in record.headers if found[0] == ENCODING_HEADER),
            ]
            futures.append(client.send(letter.topic, record.value, record.key, headers))
            sent.append(letter)
    for future in futures:
        future.get(timeout=_SEND_SECONDS)
    _note(settings, client, DONE, [letter.offset for letter in sent])
    done.sent += len(sent)
    done.reasons.update(letter.reason for letter in sent)
