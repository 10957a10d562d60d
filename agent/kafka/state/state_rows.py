"""The state of a partition as rows: which there are, and how few a step can make do with.

A record of a changelog costs Faust some 150 us, so counters go by the service that they count: a
step that counts for one service writes one row of them, not forty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from agent.aggregate import Aggregator
from agent.counters import CounterKey
from agent.steps import Changes, restore
from agent.windows import BucketRow

__all__ = ["Rows", "StateRows", "key_of", "parts_of"]

Rows = dict[bytes, bytes | None]
"""Row content by key; None where a row is deleted."""


def key_of(kind: str, *parts: str | int) -> bytes:
    return json.dumps([kind, *parts], separators=(",", ":")).encode()


def parts_of(key: bytes) -> tuple[str, list[Any]]:
    """The inverse of `key_of`. Raises ValueError."""
    kind, *parts = json.loads(key)
    return kind, parts


def _group(key: CounterKey) -> str:
    """The row that a counter is in: its service's (never empty), else its own name's."""
    name, labels = key
    service = next((value for label, value in labels if label == "service"), "")
    return f"s{service}" if service else f"n{name}"


class StateRows:
    """Turns the changes of an `Aggregator` into rows and back. One for each aggregator."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[CounterKey, float]] = {}
        self._digests: dict[str, bytes] = {}  # of the parts of `meta` as last written

    def of(self, changes: Changes) -> Rows:
        """One row for each key, and none for what is as it was."""
        rows: Rows = {
            key_of("b", service, segment, width, start): data
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
            rows[key_of("c", group)] = self._counter_row(group)
        for name, part in changes.meta.items():
            data = json.dumps(part, separators=(",", ":")).encode()
            digest = blake2b(data, digest_size=16).digest()
            if self._digests.get(name) != digest:
                self._digests[name] = digest
                rows[key_of("m", name)] = data
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
        """Restore an empty aggregator from rows by kind. Raises as `agent.steps.restore` does."""
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
        restore(aggregator, buckets, counters, meta)
