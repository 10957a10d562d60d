"""Steps of many rows, written atomically to a compacted log by slots, a marker and a fence.

A row has two slots. Step n of an owner writes each changed row into the slot that does not hold its
last committed version. When all of that is acknowledged, it writes the marker "n is done", and that
is the commit. A reader takes the newest version of each row that a marker covers, so a step without
its marker never happened.

**Zombies.** An owner that was replaced may go on for a while, and its late writes must do no harm:
compaction keeps the last value of a key, whoever wrote it. So every owner has an *epoch* of its
own, and writes only to keys of its epoch: slots, marker, and `base`, the steps of earlier epochs
that it has found committed. Recovery believes the marker of the highest epoch, and of each earlier
epoch what that owner's base says. Left to protect are committed versions in slots of the zombie's
epoch. Hence the **fence**: after the marker of step n is acknowledged and before anything of n + 1
is written, the owner commits its source offsets, which the group's coordinator refuses to an owner
whose generation is over. If it is accepted, every later owner begins to read after the marker of n.
So a zombie writes at most one step that a later owner does not know, into slots which hold nothing
committed.

**Deletion.** A deleted row is a version that says so, committed like any other. Real tombstones
follow in later steps, and only for what the last fenced step of this owner has superseded: first
for all other slots of a deleted row, then, one step later, for the one that says it is deleted. The
other way round, a crash in between would bring the row back.

**Assumptions about the log.** An acknowledged write stays. Writes that were acknowledged before
another was sent come before it. A retry does not bring back, after a later write to the same key,
one that was acknowledged earlier (an idempotent producer, or one request in flight to a broker at a
time). Compaction keeps the last record of each key; a tombstone may vanish with all that was before
it. Reading begins when the new generation is formed, and goes to the end. Generations grow; those
of a group that was deleted begin anew, and then something is written before they pass the last one
of the old group. Nothing is assumed of the order of writes that are under way together, of time, or
of how long a zombie lives.

Nothing here does I/O: the caller writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from ragmeter.core.errors import RagmeterError, UnknownVersion

VERSION = 1  # of keys and values; a program reads its own and the one before
# Real tombstones a step, at most: so many records take some 40 ms. After a takeover every row that
# changes leaves slots of the owner before; they go at the pace of the changes.
SWEEP = 256
# Or so many for each row that the step changes, where that is more: a deleted row leaves two
# records behind, its last version and the one that says it is gone, so what is left shrinks however
# much a step deletes.
SWEEP_PER_CHANGE = 3
_ERA = 32  # bits of a generation in an epoch


class LedgerError(RagmeterError):
    """The log holds what no ledger has written, or steps were called out of order."""


class LogRecord(NamedTuple):
    """A record of the log; None is Kafka's tombstone."""

    key: bytes
    value: bytes | None


class SlotPosition(NamedTuple):
    """Where a version of a row lies."""

    epoch: int
    slot: int


class RecoveredRows(NamedTuple):
    """The committed rows, and the head that the last marker carries."""

    rows: dict[bytes, bytes]
    head: bytes | None


class _RowVersion(NamedTuple):
    """Ordered by age."""

    epoch: int
    step: int
    slot: int
    content: bytes

    @property
    def position(self) -> SlotPosition:
        return SlotPosition(self.epoch, self.slot)

    @property
    def deleted(self) -> bool:
        return self.content[:1] == b"-"


class _LedgerLog:
    """The records of one partition by kind."""

    def __init__(self, prefix: bytes, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        last = {key: value for key, value in records if key.startswith(prefix)}
        self.markers: dict[int, tuple[int, bytes]] = {}
        self.bases: dict[int, bytes] = {}
        self.rows: dict[bytes, list[_RowVersion]] = {}
        for key, value in last.items():
            if value is None:
                continue
            kind, epoch_, rest = key[len(prefix) :].split(b"/", 2)
            epoch = int(epoch_, 16)
            step, _, content = value.partition(b" ")
            if kind == b"r":
                slot, row = rest.split(b"/", 1)
                version = _RowVersion(epoch, int(step), int(slot), content)
                self.rows.setdefault(row, []).append(version)
            elif kind == b"m":
                self.markers[epoch] = (_step_of_marker(step), content)
            elif kind == b"b":
                self.bases[epoch] = value
            else:
                raise ValueError(f"a key of kind {kind!r}")
        owners = {version.epoch for versions in self.rows.values() for version in versions}
        self.newest = max(owners | self.markers.keys() | self.bases.keys(), default=0)

    def committed(self) -> tuple[dict[int, int], bytes | None]:
        """Return the last committed step by epoch, and the head of the last marker."""
        if not self.markers:
            return {}, None
        last = max(self.markers)
        step, head = self.markers[last]
        base: dict[str, int] = json.loads(self.bases[last])
        return {**{int(epoch): int(upto) for epoch, upto in base.items()}, last: step}, head


def _step_of_marker(text: bytes) -> int:
    version, _, step = text.partition(b".")
    if int(version) > VERSION:
        raise UnknownVersion(
            f"state of format version {int(version)}; this program reads up to {VERSION}"
        )
    return int(step)


def partition_of_key(key: bytes) -> int:
    """Return the partition that a key of the log belongs to: tables hold those of several."""
    return int(key[: key.index(b"/")])


class Ledger:
    """The rows of one partition, for one owner in one generation of the consumer group.

    The calls are `begin`, write all, `marker`, write it, pass the fence, `done`. Where any of it
    fails this object must be given up, and the partition with it: the log is read anew in another
    generation, never in the same, because writes may still be under way.

    `step` is the last one that is done, 0 before the first. `sweep` replaces `SWEEP` if set.
    """

    def __init__(self, partition: int, epoch: int) -> None:
        self.epoch = epoch
        self.sweep: int | None = None
        self.step = 0
        self._prefix = b"%d/" % partition
        self._rows: dict[bytes, SlotPosition] = {}  # of the committed version
        self._deleted: dict[bytes, None] = {}  # rows whose committed version says that
        self._stale: dict[bytes, set[SlotPosition]] = {}  # superseded versions of a row in the log
        self._old_keys: list[bytes] = []  # markers and bases of earlier owners
        self._base: dict[int, int] = {}
        self._changes: dict[bytes, tuple[SlotPosition, bool]] | None = None
        self._forget: list[bytes] = []
        self._marked = False

    @classmethod
    def recover(
        cls, partition: int, generation: int, log: Iterable[tuple[bytes, bytes | None]]
    ) -> tuple[Ledger, RecoveredRows]:
        """Take a partition over.

        Args:
            partition: The partition; records of others are passed over.
            generation: The generation of the consumer group.
            log: All records in order, or the last of each key.

        Raises:
            LedgerError: No ledger has written this log.
            UnknownVersion: A newer program has written it.
        """
        try:
            read = _LedgerLog(b"%d/" % partition, log)
            committed, head = read.committed()
        except UnknownVersion:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"the log of the state cannot be read: {error!r}") from None
        # the generations of a group that was deleted begin anew: another era, so that epochs grow
        era, last = divmod(read.newest, 1 << _ERA)
        ledger = cls(partition, (era + (generation <= last) << _ERA) + generation)
        rows: dict[bytes, bytes] = {}
        for row, versions in read.rows.items():
            valid = [one for one in versions if one.step <= committed.get(one.epoch, 0)]
            stale = {one.position for one in versions}
            if valid:
                best = max(valid)
                stale.discard(best.position)
                ledger._rows[row] = best.position
                ledger._base[best.epoch] = committed[best.epoch]
                if best.deleted:
                    ledger._deleted[row] = None
                else:
                    rows[row] = best.content[1:]
            if stale:
                ledger._stale[row] = stale
        for kind, epochs in ((b"m", read.markers), (b"b", read.bases)):
            ledger._old_keys += [ledger._key(kind, epoch) for epoch in epochs]
        return ledger, RecoveredRows(rows, head)

    def _key(self, kind: bytes, epoch: int, rest: bytes = b"") -> bytes:
        return b"%s%s/%x/%s" % (self._prefix, kind, epoch, rest)

    def _row_key(self, row: bytes, position: SlotPosition) -> bytes:
        return self._key(b"r", position.epoch, b"%d/%s" % (position.slot, row))

    @property
    def garbage(self) -> int:
        """Records in the log that are still to be swept."""
        return sum(map(len, self._stale.values())) + len(self._deleted) + len(self._old_keys)

    def key(self, row: bytes) -> bytes:
        """Return the key of a row's committed version in the log. Raises KeyError."""
        return self._row_key(row, self._rows[row])

    @staticmethod
    def content(value: bytes) -> bytes:
        """Return the content of a row, given the value at its key."""
        return value.partition(b" +")[2]

    def begin(self, changes: Mapping[bytes, bytes | None]) -> list[LogRecord]:
        """Return what to write for the next step, in any order; a row of None is deleted."""
        if self._changes is not None:
            raise LedgerError("the step before is not done")
        step = self.step + 1
        self._changes = {}
        writes: list[LogRecord] = []
        for row, content in changes.items():
            old = self._rows.get(row)
            if content is None and (old is None or row in self._deleted):
                continue
            position = SlotPosition(self.epoch, 0)
            if old is not None and old.epoch == self.epoch:
                position = SlotPosition(self.epoch, 1 - old.slot)
            self._changes[row] = (position, content is None)
            self._stale.get(row, set()).discard(position)
            value = b"%d -" % step if content is None else b"%d +%s" % (step, content)
            writes.append(LogRecord(self._row_key(row, position), value))
        if not self.step:
            base = {str(epoch): upto for epoch, upto in self._base.items()}
            writes.append(LogRecord(self._key(b"b", self.epoch), json.dumps(base).encode()))
            return writes
        return writes + self._sweep()

    def _sweep(self) -> list[LogRecord]:
        """Real tombstones for what the last step that is done has superseded."""
        assert self._changes is not None
        most = SWEEP if self.sweep is None else self.sweep
        most = max(most, SWEEP_PER_CHANGE * len(self._changes))
        keys, self._old_keys = self._old_keys[:most], self._old_keys[most:]
        for row in list(islice(self._stale, most)):
            if len(keys) >= most:
                break
            keys += [self._row_key(row, position) for position in self._stale[row]]
            if row in self._deleted:
                self._stale[row] = set()  # until `done`: what says "deleted" goes a step later
            else:
                del self._stale[row]
        for row in self._deleted:
            if len(keys) >= most:
                break
            if row not in self._stale and row not in self._changes:
                keys.append(self.key(row))
                self._forget.append(row)
        return [LogRecord(key, None) for key in keys]

    def marker(self, head: bytes) -> LogRecord:
        """Return the marker, which commits the step: write it when all writes are acknowledged.

        `head` is saved beside the rows.
        """
        if self._changes is None or self._marked:
            raise LedgerError("no step was begun")
        self._marked = True
        value = b"%d.%d %s" % (VERSION, self.step + 1, head)
        return LogRecord(self._key(b"m", self.epoch), value)

    def done(self) -> None:
        """End the step: the marker is acknowledged, and the fence was passed after that."""
        if self._changes is None or not self._marked:
            raise LedgerError("the step has no marker")
        for row in self._forget:
            del self._rows[row], self._deleted[row]
        for row in [row for row, positions in self._stale.items() if not positions]:
            del self._stale[row]
        for row, (position, deleted) in self._changes.items():
            old = self._rows.get(row)
            self._rows[row] = position
            self._deleted.pop(row, None)
            if old is not None and (deleted or old.epoch != self.epoch):
                self._stale.setdefault(row, set()).add(old)
            if deleted:
                self._deleted[row] = None
        self.step += 1
        self._changes, self._forget, self._marked = None, [], False
