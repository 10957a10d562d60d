"""Convert changes of the aggregator, the notification outbox and the evidence to rows and back.

The state of a partition as rows: which there are, and how few a step can make do with.

A record of a changelog costs Faust some 150 us, so counters go by the service that they count: a
step that counts for one service writes one row of them, not forty.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator, AggregatorChanges, restore_aggregator
from ragmeter.core.counters import CounterKey
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import RecordTooLarge, ScoreRecord, decode_score, encode_score
from ragmeter.store.rows import OutboxItem
from ragmeter.windows.state import BucketRow

Rows = dict[bytes, bytes | None]
"""Row content by key; None where a row is deleted."""


def row_key(kind: str, *parts: str | int) -> bytes:
    return json.dumps([kind, *parts], separators=(",", ":")).encode()


def split_row_key(key: bytes) -> tuple[str, list[Any]]:
    """The inverse of `key_of`. Raises ValueError."""
    kind, *parts = json.loads(key)
    return kind, parts


def _group(key: CounterKey) -> str:
    """The row that a counter is in: its service's (never empty), else its own name's."""
    name, labels = key
    service = next((value for label, value in labels if label == "service"), "")
    return f"s{service}" if service else f"n{name}"


class AggregatorRows:
    """Turns the changes of an `Aggregator` into rows and back. One for each aggregator."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[CounterKey, float]] = {}
        self._digests: dict[str, bytes] = {}  # of the parts of `meta` as last written

    def of(self, changes: AggregatorChanges) -> Rows:
        """One row for each key, and none for what is as it was."""
        rows: Rows = {
            row_key("b", service, segment, width, start): data
            for service, segment, width, start, data in changes.buckets
        }
        groups: dict[str, None] = {}
        for key, value in changes.counters:
            group = _group(key)
            groups[group] = None
            known = self._counters.setdefault(group, {})
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value
        for group in groups:
            rows[row_key("c", group)] = self._counter_row(group)
        for name, part in changes.meta.items():
            data = json.dumps(part, separators=(",", ":")).encode()
            digest = blake2b(data, digest_size=16).digest()
            if self._digests.get(name) != digest:
                self._digests[name] = digest
                rows[row_key("m", name)] = data
        return rows

    def _counter_row(self, group: str) -> bytes | None:
        known = self._counters[group]
        if not known:
            del self._counters[group]
            return None
        content = [[name, labels, value] for (name, labels), value in sorted(known.items())]
        return json.dumps(content, separators=(",", ":")).encode()

    def load(
        self, aggregator: Aggregator, rows: Mapping[str, Sequence[tuple[list[Any], bytes]]]
    ) -> None:
        """Restore an empty aggregator from rows by kind. Raises as `ragmeter.aggregate.aggregator.restore` does."""
        buckets: list[BucketRow] = []
        for (service, segment, width, start), data in rows.get("b", ()):
            buckets.append((service, segment, width, start, data))
        meta = {name: json.loads(data) for (name,), data in rows.get("m", ())}
        for (name,), data in rows.get("m", ()):
            self._digests[name] = blake2b(data, digest_size=16).digest()
        for (group,), data in rows.get("c", ()):
            self._counters[group] = {
                (name, tuple((label, value) for label, value in labels)): value
                for name, labels, value in json.loads(data)
            }
        counters = [item for known in self._counters.values() for item in known.items()]
        restore_aggregator(aggregator, buckets, counters, meta)


class OutboxRows:
    """Delivered at least once: a row goes with the step after its delivery. When to try again is
    not kept: after a restart all that waits is due.

    Nothing is due before the step it came with is durable (`settled`). A step that never was is
    done anew, perhaps at another event time: then the receiver would be told of two firings.
    """

    def __init__(self) -> None:
        self._items: dict[str, OutboxItem] = {}
        self._due: dict[str, float] = {}
        self._number: dict[str, int] = {}
        self._last = 0
        self._changed: set[str] = set()
        self._unsettled: set[str] = set()

    def add(self, items: Iterable[OutboxItem]) -> None:
        """One with a known id is the same again."""
        for item in items:
            if item.id not in self._items:
                self._last += 1
                self._items[item.id], self._number[item.id] = item, self._last
                self._changed.add(item.id)
                self._unsettled.add(item.id)

    def settled(self) -> None:
        """The last step is durable."""
        self._unsettled.clear()

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        """To be sent, oldest first; none before an older one of its key."""
        first: dict[str, OutboxItem] = {}
        for item in self._items.values():
            first.setdefault(item.key, item)
        return [
            one
            for one in first.values()
            if one.id not in self._unsettled and self._due.get(one.id, 0.0) <= now
        ][:limit]

    def done(self, item_id: str) -> None:
        if self._items.pop(item_id, None) is not None:
            self._due.pop(item_id, None)
            self._unsettled.discard(item_id)
            del self._number[item_id]
            self._changed.add(item_id)

    def retry(self, item_id: str, at: float) -> None:
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, attempts=item.attempts + 1)
            self._due[item_id] = at

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def drain(self) -> dict[str, bytes | None]:
        changed, self._changed = sorted(self._changed), set()
        return {name: self._row(name) for name in changed}

    def _row(self, name: str) -> bytes | None:
        item = self._items.get(name)
        if item is None:
            return None
        return json.dumps([self._number[name], item.key, item.body, item.created]).encode()

    def load(self, rows: Sequence[tuple[str, bytes]]) -> None:
        read = sorted((json.loads(data), name) for name, data in rows)
        for (number, key, body, created), name in read:
            self._items[name] = OutboxItem(name, key, body, created)
            self._number[name] = self._last = number


_COLLECT_SECONDS = 60.0  # of event time: how often what is no longer among the worst is let go
_COLLECT_ROWS = 5_000  # or after so many more were kept

TraceKey = tuple[str, str]
"""(service by its bounded name, trace id)"""

_GONE, _PENDING, _CROWDED = "gone", "pending", "crowded"
"""In place of what `privacy.content` says of a trace whose texts are not there: it lies nowhere any
more, it was not read yet, there is no room for it now."""

_RECORD, _TEXT = b"r", b"z"  # the scores alone, or the text as well, compressed
_LEVEL = 1  # English passages shrink to 36 %; at the default 6 to 34 %


class EvidenceRows:
    """Rows by trace. Pure. Of texts at most about `room` bytes are kept: a service has some 300
    worst traces by default, and all of this is in memory, in the table of the state once more."""

    def __init__(self, content: ContentPolicy, room: int) -> None:
        self._content = content
        self._room = room
        self._bytes = 0
        self._kept: dict[TraceKey, bytes] = {}
        self._given: Rows = {}  # since the last `drain`
        self._added = 0
        self._collected: float | None = None

    @property
    def changed(self) -> bool:
        return bool(self._given)

    def add(self, key: TraceKey, record: ScoreRecord) -> None:
        """A trace has become one of the worst."""
        try:
            data = encode_score(replace(record, passages=None))  # their place is among the frames
        except RecordTooLarge:  # from a worker that knew no such limit: it counts, and is not shown
            return
        self._put(key, _RECORD + data)
        self._added += 1

    def _put(self, key: TraceKey, data: bytes | None) -> None:
        self._bytes += _text_bytes(data) - _text_bytes(self._kept.pop(key, None))
        if data is not None:
            self._kept[key] = data
        self._given[row_key("e", *key)] = data

    def collect(self, now: float | None, worst: Callable[[], Set[TraceKey]]) -> None:
        """Let go what is no longer among the worst. By event time, for what is kept must not
        depend on batches."""
        if now is None:
            return
        if self._collected is None:
            self._collected = now
        if now - self._collected >= _COLLECT_SECONDS or self._added >= _COLLECT_ROWS:
            self._collected, self._added = now, 0
            for key in self._kept.keys() - worst():
                self._put(key, None)

    # Texts --------------------------------------------------------------------------------------

    def missing_texts(
        self, most: int | None = None, but: Container[TraceKey] = ()
    ) -> list[tuple[TraceKey, ScoreRecord]]:
        """Those whose text is not kept yet, and their records: where to read it. At most so many,
        those that have waited longest, and none of `but`; none while there is no room."""
        if self._bytes >= self._room:
            return []
        waiting = (
            (key, data)
            for key, data in self._kept.items()
            if data[:1] == _RECORD and key not in but
        )
        return [(key, decode_score(data[1:])) for key, data in islice(waiting, most)]

    def save_text(self, key: TraceKey, body: bytes | None) -> None:
        """What was read, by `ragmeter.aggregate.evidence.evidence_body`; None: it is gone from the topic. One
        that is no longer among the worst is left out."""
        kept = self._kept.get(key)
        if kept is not None and kept[:1] == _RECORD:
            if body is None:
                body = json.dumps(self._bare(key, kept, _GONE)).encode()
            self._put(key, _TEXT + zlib.compress(body, _LEVEL))

    def get(self, key: TraceKey) -> bytes | None:
        """What is known of a worst trace, in the form of `ragmeter.aggregate.evidence`."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept[:1] == _TEXT:
            return zlib.decompress(kept[1:])
        why = _PENDING if self._bytes < self._room else _CROWDED
        return json.dumps(self._bare(key, kept, why)).encode()

    def _bare(self, key: TraceKey, kept: bytes, why: str) -> dict[str, Any]:
        results = [score.to_dict() for score in decode_score(kept[1:]).scored.results]
        service, trace_id = key
        trace = {"trace_id": trace_id, "service": service, "passages": None, "content": why}
        return {"trace": trace, "results": self._content.results(results)}

    # State --------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """For `load`: under which setting the rows were made."""
        return self._content.mode

    def drain(self) -> Rows:
        """The rows that changed since the last call."""
        given, self._given = self._given, {}
        return given

    def load(self, rows: Iterable[tuple[TraceKey, bytes]], mode: str) -> None:
        """All rows that were not deleted, and the mode of whoever made them: what must not be kept
        any longer is let go, and compaction takes away the last of it."""
        self._kept = dict(rows)
        self._bytes = sum(map(_text_bytes, self._kept.values()))
        if self._content.changed(mode):
            for key in list(self._kept):
                self._put(key, None)


def _text_bytes(data: bytes | None) -> int:
    """Of what counts for the room."""
    return len(data) if data is not None and data[:1] == _TEXT else 0
