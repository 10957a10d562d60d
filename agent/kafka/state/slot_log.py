"""What steps leave in the log of a partition, read: versions of rows, markers, bases.

`agent.kafka.state.slots` says what they mean, and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from agent.errors import UnknownVersion

__all__ = ["VERSION", "LedgerError", "LedgerLog", "Place", "Version", "Write", "partition_of"]

VERSION = 1
"""Of keys and values. A program reads its own and the one before."""


class LedgerError(Exception):
    """The log holds what no ledger has written, or the steps were not done in their order."""


class Write(NamedTuple):
    """A record of the log; None is Kafka's tombstone."""

    key: bytes
    value: bytes | None


class Place(NamedTuple):
    """Where a version of a row lies."""

    epoch: int
    slot: int


class Version(NamedTuple):
    """Ordered by age."""

    epoch: int
    step: int
    slot: int
    content: bytes

    @property
    def place(self) -> Place:
        return Place(self.epoch, self.slot)

    @property
    def gone(self) -> bool:
        return self.content[:1] == b"-"


class LedgerLog:
    """The records of one partition, taken apart."""

    def __init__(self, prefix: bytes, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        found: dict[bytes, bytes | None] = {}
        for key, value in records:
            if key.startswith(prefix):
                found[key] = value
        self.markers: dict[int, tuple[int, bytes]] = {}
        self.bases: dict[int, bytes] = {}
        self.rows: dict[bytes, list[Version]] = {}
        for key, value in found.items():
            if value is None:
                continue
            kind, epoch_, rest = key[len(prefix) :].split(b"/", 2)
            epoch = int(epoch_, 16)
            step, _, content = value.partition(b" ")
            if kind == b"r":
                slot, row = rest.split(b"/", 1)
                version = Version(epoch, int(step), int(slot), content)
                self.rows.setdefault(row, []).append(version)
            elif kind == b"m":
                self.markers[epoch] = (_step(step), content)
            elif kind == b"b":
                self.bases[epoch] = value
            else:
                raise ValueError(f"a key of kind {kind!r}")
        owners = {version.epoch for versions in self.rows.values() for version in versions}
        self.newest = max(owners | self.markers.keys() | self.bases.keys(), default=0)

    def committed(self) -> tuple[dict[int, int], bytes | None]:
        """The last step by epoch that counts, and what the last marker says."""
        if not self.markers:
            return {}, None
        last = max(self.markers)
        step, head = self.markers[last]
        base: dict[str, int] = json.loads(self.bases[last])
        return {**{int(epoch): int(upto) for epoch, upto in base.items()}, last: step}, head


def _step(text: bytes) -> int:
    version, _, step = text.partition(b".")
    if int(version) > VERSION:
        raise UnknownVersion(
            f"state of format version {int(version)}; this program reads up to {VERSION}"
        )
    return int(step)


def partition_of(key: bytes) -> int:
    """The partition that a key of the log belongs to: tables hold those of several."""
    return int(key[: key.index(b"/")])
