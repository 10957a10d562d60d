"""Which records were counted already: a window of offsets for each source, as IPsec has it.

Stage 1 scores every trace at least once and may send its record twice: after a crash, after a
rebalance, by a zombie. Each record names the source offset it comes from. Of each source the
highest offset that was counted is kept, and a bit for each of the `width` offsets up to it; what
is older still was counted or will never come.

That last rule is sound because of a promise of stage 1 (`agent.kafka.stages.acks`): the record of
offset m is never sent before the records of all offsets up to m - K are in the log of the scores.
It holds for every sender on its own, zombies too, for each begins where the offsets before it were
committed, hence sent. All records of one source offset go to the same partition of the scores and
this guard reads that in its order, so when it reads m it has read all that will ever count up to
m - K. `width` is 2K, so that `kafka.in_flight` may be doubled while old and new workers run side
by side. Offsets that never come (compaction, dead letters, another partition's) just stay 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.kafka.messages.source import Source

__all__ = ["EPOCHS", "ReplayGuard"]

EPOCHS = 2
"""Kept of each partition. The operator raises the epoch when the topic of the traces was made
anew, for its offsets start over; while the change goes round, records of both are in the log."""


class ReplayGuard:
    """`width` is how many offsets up to the highest one are told apart: at least K."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise ValueError("the window needs at least one offset")
        self.width = width
        self._mask = (1 << width) - 1
        self._windows: dict[tuple[int, int], tuple[int, int]] = {}  # highest offset, bits below it

    def first(self, source: Source) -> bool:
        """Whether the record is to be counted; it counts as counted from now on."""
        key = (source.epoch, source.partition)
        window = self._windows.get(key)
        if window is None:
            if not self._admit(source.epoch, source.partition):
                return False
            window = (-1, 0)
        top, bits = window
        ahead = source.offset - top
        if ahead > 0:
            # a shift by a gap of millions would build a number of as many bits
            bits = (bits << ahead | 1) & self._mask if ahead < self.width else 1
            self._windows[key] = (source.offset, bits)
            return True
        if -ahead >= self.width or bits >> -ahead & 1:
            return False
        self._windows[key] = (top, bits | 1 << -ahead)
        return True

    def knows(self, source: Source) -> bool:
        """Whether `first` would say no."""
        window = self._windows.get((source.epoch, source.partition))
        if window is None:
            epochs = sorted(known for known, other in self._windows if other == source.partition)
            return len(epochs) >= EPOCHS and source.epoch < epochs[0]
        behind = window[0] - source.offset
        return behind >= 0 and (behind >= self.width or bool(window[1] >> behind & 1))

    def _admit(self, epoch: int, partition: int) -> bool:
        """Make room for another epoch of a partition; False for one older than those kept."""
        epochs = sorted(known for known, other in self._windows if other == partition)
        if len(epochs) >= EPOCHS:
            if epoch < epochs[0]:
                return False
            del self._windows[epochs[0], partition]
        return True

    def __len__(self) -> int:
        return len(self._windows)

    def dump(self) -> dict[str, Any]:
        """JSON-able; of each source [epoch, partition, highest offset, bits in hexadecimal]."""
        rows = [[*key, top, f"{bits:x}"] for key, (top, bits) in sorted(self._windows.items())]
        return {"width": self.width, "sources": rows}

    @classmethod
    def load(cls, width: int, saved: Mapping[str, Any]) -> ReplayGuard:
        """Back from `dump`. A narrower window is widened, what lay beyond it stays counted; a wider
        one stays as it is, for what senders with a larger K have sent may still be on its way.
        Raises KeyError, ValueError or TypeError for what `dump` has not written."""
        was = int(saved["width"])
        guard = cls(max(width, was))
        beyond = guard._mask & ~((1 << was) - 1)
        for epoch, partition, top, bits in saved["sources"]:
            guard._windows[int(epoch), int(partition)] = (int(top), int(bits, 16) | beyond)
        return guard

    def tops(self) -> Mapping[tuple[int, int], int]:
        """The highest offset counted, by (epoch, partition)."""
        return {key: top for key, (top, _) in self._windows.items()}
