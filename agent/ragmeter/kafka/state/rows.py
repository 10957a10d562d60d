"""Rows of a partition's state: of the aggregator, notifications, evidence and ids, and back.

A record of a topic costs a reader some 15 us whatever is in it, so a row holds as much as changes
together: the counters of a service are one row, not forty.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from hashlib import blake2b
from itertools import islice
from typing import Any

from ragmeter.aggregate.evidence import CollectionPace, EvidenceKey
from ragmeter.core.counters import CounterKey
from ragmeter.core.dedupe import MAX_GENERATION_IDS, DedupeIds
from ragmeter.core.errors import UnknownVersion, UnusableResource
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import RecordTooLarge, ScoreRecord, decode_score, encode_score
from ragmeter.store.rows import OutboxItem, SavedState, StateCommit
from ragmeter.windows.state import BucketRow

Rows = dict[bytes, bytes | None]
"""Row content by key; None where a row is deleted."""


STATE_VERSION = 1
HEAD = b"head"  # key of the row with the small state that is written with each step


class MalformedState(UnusableResource):
    """A state topic holds what no worker has written."""


RowsByKind = Mapping[str, Sequence[tuple[list[Any], bytes]]]
"""The rest of the key, and the content, of rows by their kind."""

# In place of what `privacy.content` says of a trace without its texts: they are no longer in the
# topic, were not read yet, or there is no room for them.
_GONE, _PENDING, _CROWDED = "gone", "pending", "crowded"
_RECORD, _TEXT = b"r", b"z"  # the scores alone, or the text as well, compressed
_LEVEL = 1  # English passages shrink to 36 %; at the default 6 to 34 %


def dump_json(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def row_key(kind: str, *parts: str | int) -> bytes:
    """Return the key of a row."""
    return dump_json([kind, *parts])


def load_rows(
    rows: Mapping[bytes, bytes], what: str, load: Callable[[dict[str, Any], RowsByKind], object]
) -> None:
    """Call `load` with the parsed head of a state, the row `HEAD`; an empty state has none.

    Raises:
        UnknownVersion: The state is in the format of another version.
        MalformedState: The state is malformed.
    """
    if not rows:
        return
    try:
        head = json.loads(rows[HEAD])
        if head["v"] != STATE_VERSION:
            raise UnknownVersion(
                f"{what} of format version {head['v']}; this program reads version {STATE_VERSION}"
            )
        by_kind: dict[str, list[tuple[list[Any], bytes]]] = {}
        for row, data in rows.items():
            if row != HEAD:
                kind, *key = json.loads(row)
                by_kind.setdefault(kind, []).append((key, data))
        load(head, by_kind)
    except UnknownVersion:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedState(f"rows of {what} are malformed: {error!r}") from None


class CommitRows:
    """Turns commits into rows and back, but for evidence, which `EvidenceRows` has."""

    def __init__(self) -> None:
        self._notifications = 0  # number of the last, which orders them
        self._counters: dict[str, dict[CounterKey, float]] = {}
        self._digests: dict[str, bytes] = {}  # of the parts of `meta` as last written

    def of(self, changes: StateCommit) -> Rows:
        """Return one row for each key that changed."""
        rows: Rows = {
            row_key("b", service, segment, width, start): data
            for service, segment, width, start, data in changes.buckets
        }
        groups: dict[str, None] = {}
        for key, value in changes.counters:
            group = _counter_group(key)
            groups[group] = None
            counters = self._counters.setdefault(group, {})
            if value is None:
                counters.pop(key, None)
            else:
                counters[key] = value
        for group in groups:
            rows[row_key("c", group)] = self._counter_row(group)
        for name, part in changes.meta.items():
            data = dump_json(part)
            digest = _digest(data)
            if self._digests.get(name) != digest:
                self._digests[name] = digest
                rows[row_key("m", name)] = data
        for name in changes.forget_meta:
            self._digests.pop(name, None)
            rows[row_key("m", name)] = None
        rows |= {row_key("o", name): None for name in changes.delivered}
        for number, item in enumerate(changes.outbox, self._notifications + 1):
            row = json.dumps([number, item.key, item.body, item.created])
            rows[row_key("o", item.id)] = row.encode()
        self._notifications += len(changes.outbox)
        return rows

    def _counter_row(self, group: str) -> bytes | None:
        counters = self._counters[group]
        if not counters:
            del self._counters[group]
            return None
        return dump_json(
            [[name, labels, value] for (name, labels), value in sorted(counters.items())]
        )

    def load(self, rows: RowsByKind) -> SavedState:
        """Return what all rows say."""
        buckets: list[BucketRow] = [(*key, data) for key, data in rows.get("b", ())]
        meta: dict[str, Any] = {}
        for (name,), data in rows.get("m", ()):
            meta[name], self._digests[name] = json.loads(data), _digest(data)
        for (group,), data in rows.get("c", ()):
            self._counters[group] = {
                (name, tuple((label, value) for label, value in labels)): value
                for name, labels, value in json.loads(data)
            }
        counters = [item for group in self._counters.values() for item in group.items()]
        outbox = []
        for (number, *fields), name in sorted((json.loads(d), n) for (n,), d in rows.get("o", ())):
            self._notifications = number
            outbox.append(OutboxItem(name, *fields))
        return SavedState(buckets, counters, meta, outbox)


def _counter_group(key: CounterKey) -> str:
    """Return the row of a counter: its service's (never empty), else its own name's."""
    name, labels = key
    service = next((value for label, value in labels if label == "service"), "")
    return f"s{service}" if service else f"n{name}"


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


class EvidenceRows:
    """The worst traces, by (bounded service name, trace id).

    At most about `room` bytes of texts are kept: a service has some 300 worst traces by default,
    and all of this is in memory, and in the table of the state once more. `changes` are the rows
    that have changed since whoever writes them took them.
    """

    def __init__(self, content: ContentPolicy, room: int) -> None:
        self._content = content
        self._room = room
        self._bytes = 0
        self._bodies: dict[EvidenceKey, bytes] = {}
        self.changes: Rows = {}
        self._pace = CollectionPace()

    def add(self, key: EvidenceKey, record: ScoreRecord) -> None:
        """Keep a trace that has become one of the worst."""
        try:
            # feedback rows have the passages
            data = encode_score(ScoreRecord(record.scored, record.source))
        except RecordTooLarge:  # from a worker without this limit: it counts, and is not shown
            return
        self._put(key, _RECORD + data)
        self._pace.added += 1

    def _put(self, key: EvidenceKey, data: bytes | None) -> None:
        self._bytes += _text_bytes(data) - _text_bytes(self._bodies.pop(key, None))
        if data is not None:
            self._bodies[key] = data
        self.changes[row_key("e", *key)] = data

    def collect(self, now: float | None, worst: Callable[[], Set[EvidenceKey]]) -> None:
        """Drop traces that are no longer among the worst, now and then.

        `now` is event time: what is kept must not depend on batches.
        """
        if now is not None and self._pace.due(now):
            for key in self._bodies.keys() - worst():
                self._put(key, None)

    def missing_texts(
        self, most: int | None = None, but: Container[EvidenceKey] = ()
    ) -> list[tuple[EvidenceKey, ScoreRecord]]:
        """Return up to `most` traces without a text, longest waiting first, and none of `but`.

        There are none while there is no room. Their records tell where the text can be read.
        """
        if self._bytes >= self._room:
            return []
        waiting = (
            (key, data)
            for key, data in self._bodies.items()
            if data[:1] == _RECORD and key not in but
        )
        return [(key, decode_score(data[1:])) for key, data in islice(waiting, most)]

    def save_text(self, key: EvidenceKey, body: bytes | None) -> None:
        """Keep what `encode_evidence` made of the text, or None where it is gone from the topic.

        A trace that is no longer among the worst is left out.
        """
        data = self._bodies.get(key)
        if data is not None and data[:1] == _RECORD:
            if body is None:
                body = json.dumps(self._without_text(key, data, _GONE)).encode()
            self._put(key, _TEXT + zlib.compress(body, _LEVEL))

    def get(self, key: EvidenceKey) -> bytes | None:
        """Return what is known of a worst trace, in the form of `ragmeter.aggregate.evidence`."""
        data = self._bodies.get(key)
        if data is None:
            return None
        if data[:1] == _TEXT:
            return zlib.decompress(data[1:])
        why = _PENDING if self._bytes < self._room else _CROWDED
        return json.dumps(self._without_text(key, data, why)).encode()

    def _without_text(self, key: EvidenceKey, data: bytes, why: str) -> dict[str, Any]:
        results = [score.to_dict() for score in decode_score(data[1:]).scored.results]
        service, trace_id = key
        trace = {"trace_id": trace_id, "service": service, "passages": None, "content": why}
        return {"trace": trace, "results": self._content.results(results)}

    def load(self, rows: Iterable[tuple[list[Any], bytes]], mode: str) -> None:
        """Restore all rows, made under `mode`; where that has changed since, they are deleted."""
        self._bodies = {(service, name): data for (service, name), data in rows}
        self._bytes = sum(map(_text_bytes, self._bodies.values()))
        if self._content.changed(mode):
            for key in list(self._bodies):
                self._put(key, None)


def _text_bytes(data: bytes | None) -> int:
    """Return the size that counts for the room."""
    return len(data) if data is not None and data[:1] == _TEXT else 0


# Ids a row: 8 kB, so that the four million of a generation are 4,096 rows to recover, and a step
# writes 4 kB on average for those that are new. A row a step would be a million rows a day.
_CHUNK = 1024
_DROP = 64  # rows of a past generation that a step deletes: they harm nobody meanwhile

_IdRowKey = tuple[int, int]  # (generation, number of the row in it)


class SeenIdRows(DedupeIds):
    """Seen trace ids, gathered in rows of `_CHUNK`; the open row is rewritten at each step."""

    def __init__(self, horizon: float, most: int = MAX_GENERATION_IDS) -> None:
        super().__init__(horizon, most)
        self._key = (0, 0)  # of the open row
        self._open = array("Q")
        self._written = 0  # ids of the open row that the last `drain` gave
        self._changed: dict[_IdRowKey, bytes | None] = {}
        self._keys: list[list[_IdRowKey]] = [
            [],
            [],
        ]  # rows of this generation and of the one before
        self._over: list[_IdRowKey] = []

    def add_hash(self, number: int, timestamp: float) -> bool:
        """Do as `DedupeIds.add_hash`."""
        before = self._new
        new = super().add_hash(number, timestamp)
        if self._new is not before:
            self._open_row((self._key[0] + 1, 0))
            self._over += self._keys[1]
            self._keys = [[], self._keys[0]]
        if new:
            if not self._open:
                self._keys[0].append(self._key)
            self._open.append(number)
            if len(self._open) >= _CHUNK:
                self._open_row((self._key[0], self._key[1] + 1))
        return new

    def _open_row(self, key: _IdRowKey) -> None:
        self._write_open()
        self._key, self._open, self._written = key, array("Q"), 0

    def _write_open(self) -> None:
        if len(self._open) > self._written:
            self._changed[self._key] = _little_endian(self._open).tobytes()
            self._written = len(self._open)

    def drain(self) -> Rows:
        """Return the rows that changed since the last call."""
        self._write_open()
        changed, self._changed = self._changed, {}
        changed.update(dict.fromkeys(self._over[:_DROP]))
        del self._over[:_DROP]
        return {row_key("s", *key): data for key, data in changed.items()}

    def dump(self) -> list[Any]:
        """Return JSON-able state, which belongs to the rows of the same step."""
        clock = self._clock
        return [self._key[0], clock.start, clock.outside, self._since, self._newest]

    def load(self, saved: list[Any], rows: Iterable[tuple[list[int], bytes]]) -> None:
        """Restore saved state and rows, in an empty object."""
        generation = int(saved[0])
        self._clock.start, self._clock.outside = saved[1], int(saved[2])
        self._since, self._newest = saved[3], saved[4]
        self._key = (generation, 0)
        for (row_generation, number), data in sorted(rows):
            key = (row_generation, number)
            age = generation - row_generation
            if age > 1:
                self._over.append(key)
                continue
            self._keys[age].append(key)
            numbers = array("Q")
            numbers.frombytes(data)
            numbers = _little_endian(numbers)
            for hashed in numbers:
                (self._old if age else self._new).add(hashed)
            if not age:
                self._key, self._open, self._written = key, numbers, len(numbers)
        if len(self._open) >= _CHUNK:
            self._open_row((generation, self._key[1] + 1))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
