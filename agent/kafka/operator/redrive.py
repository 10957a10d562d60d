"""`ragmeter kafka dlq redrive`: dead letters back to where they came from, nothing twice.

Without transactions: an unfinished one would hold back the traces of all producers for a minute.
Instead every batch is noted in the topic of the dead letters before it goes out and when all of it
has been acknowledged (`agent.kafka.operator.dead_letters`). Whoever finds a note without its end
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

from agent.kafka.messages.encodings import HEADER
from agent.kafka.operator.clients import Failed, admin, consumer, partitions_of, producer
from agent.kafka.operator.dead_letters import (
    DONE,
    INTENT,
    RECEIPT,
    Contents,
    Letter,
    read_letters,
    records_between,
    the_partition,
)
from agent.settings import Settings
from agent.settings.kafka import Topics

__all__ = ["Redriven", "redrive"]

BATCH = 100  # letters between two receipts: what a crash leaves to be looked for
SESSION_MS = 10_000  # after a crash the next redrive is kept out so long
JOIN_SECONDS = 30.0
SEND_SECONDS = 70.0  # more than the producer itself tries for
# a broker's clock may be behind ours by this much; the records that are looked through are few
SKEW_MS = 600_000


@dataclass(slots=True)
class Redriven:
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
) -> Redriven:
    """Sends what was not sent yet, oldest first. Raises `Failed`."""
    done = Redriven()
    if dry_run:
        for letter in _pending(settings, read_letters(settings.kafka), done, reason, limit):
            done.reasons[letter.reason] += 1
        return done
    with _alone(settings), producer(settings.kafka, settings.limits.trace_bytes) as client:
        contents = read_letters(settings.kafka)
        _find_begun(settings, client, contents, done)
        pending = _pending(settings, contents, done, reason, limit)
        for start in range(0, len(pending), BATCH):
            _send(settings, client, pending[start : start + BATCH], done)
            say(f"{done.sent} of {len(pending)} sent")
    return done


def _pending(
    settings: Settings, contents: Contents, done: Redriven, reason: str | None, limit: int | None
) -> list[Letter]:
    found = []
    for letter in contents.letters:
        if letter.offset in contents.sent or (reason is not None and letter.reason != reason):
            continue
        if why := _why_not(letter, settings.kafka.topics):
            done.left[why] += 1
        else:
            found.append(letter)
    return found[:limit]


def _why_not(letter: Letter, topics: Topics) -> str:
    """Why a letter cannot be sent again; "" if it can. Behind the traces a guard drops what comes
    out of its order (`agent.kafka.state.replay_guard`): it would be lost, and look sent."""
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
def _alone(settings: Settings) -> Iterator[None]:
    """As the only member of the group of redrives."""
    kafka = settings.kafka
    group = f"{kafka.group}-redrive"
    other = f"another redrive is running, or ended less than {SESSION_MS // 1000} s ago"
    with admin(kafka) as client:
        try:
            members = client.describe_groups([group])[group].get("members", ())
        except Exception as error:
            if type(error).__name__ not in ("CoordinatorNotAvailableError", "GroupIdNotFoundError"):
                raise
            members = ()  # a new cluster, or a new group
    if members:
        raise Failed(other)
    options = {"group_id": group, "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 2_000}
    with consumer(kafka, **options, max_poll_interval_ms=3_600_000) as member:
        part = the_partition(member, kafka)
        member.subscribe([part.topic])
        deadline = time.monotonic() + JOIN_SECONDS
        while not member.assignment():
            member.poll(timeout_ms=200, max_records=1)
            if time.monotonic() > deadline:
                raise Failed(other)
        yield


def _find_begun(settings: Settings, client: Any, contents: Contents, done: Redriven) -> None:
    """Settle what an earlier redrive had begun: what is found in the source topic was sent."""
    begun = {offset: at for offset, at in contents.begun.items() if offset not in contents.sent}
    if not begun:
        return
    topics = {letter.topic for letter in contents.letters if letter.offset in begun}
    since = min(begun.values()) - SKEW_MS
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
    headers = [(RECEIPT, kind)]
    client.send(settings.kafka.topics.dead, body, headers=headers).get(timeout=SEND_SECONDS)


def _send(settings: Settings, client: Any, batch: list[Letter], done: Redriven) -> None:
    by_offset = {letter.offset: letter for letter in batch}
    _note(settings, client, INTENT, list(by_offset))
    futures, sent = [], []
    with consumer(settings.kafka) as reader:
        part = the_partition(reader, settings.kafka)
        for record in records_between(reader, part, batch[0].offset, batch[-1].offset + 1):
            letter = by_offset.get(record.offset)
            if letter is None:
                continue
            headers = [
                ("attempt", b"%d" % letter.attempt),  # of those behind it: a worker adds its own
                ("origin", letter.source.encode()),
                ("letter", b"%d" % letter.offset),
                *(found for found in record.headers if found[0] == HEADER),
            ]
            futures.append(client.send(letter.topic, record.value, record.key, headers))
            sent.append(letter)
    for future in futures:
        future.get(timeout=SEND_SECONDS)
    _note(settings, client, DONE, [letter.offset for letter in sent])
    done.sent += len(sent)
    done.reasons.update(letter.reason for letter in sent)
