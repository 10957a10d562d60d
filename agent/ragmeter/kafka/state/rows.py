"""Rows of a partition's state: their keys, and those of commits.

A record of a topic costs a reader some 15 us whatever is in it, so a row holds as much as changes
together: the counters of a service are one row, not forty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from ragmeter.core.counters import CounterKey
from ragmeter.core.errors import UnknownVersion, UnusableResource
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
            meta[name] = json.loads(data)
            self._digests[name] = _digest(data)
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
