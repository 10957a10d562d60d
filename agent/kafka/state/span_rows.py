"""Spans of open traces as rows of a state: what a row holds, and how much of them there may be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agent.ingest.carried import join
from agent.settings.otlp import Otlp

__all__ = ["Chunk", "body_of", "share_of"]


@dataclass(slots=True)
class Chunk:
    """What has come of a trace since the last step: one row of the next."""

    arrived: float
    root: bool = False
    size: int = 0
    keys: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def content(self) -> bytes:
        head = json.dumps([self.arrived, self.root, self.size, self.keys], separators=(",", ":"))
        return head.encode() + b"\n" + join(self.lines)


def body_of(row: bytes) -> bytes:
    """The lines of a row of spans, for `agent.ingest.carried.read`."""
    return row.partition(b"\n")[2]


def share_of(settings: Otlp, partitions: int) -> Otlp:
    """The bounds of one partition: those of all together are the settings', whoever owns how many
    of them. The least that is of use is a partition's in any case."""
    return settings.model_copy(
        update={
            "max_open_traces": max(100, settings.max_open_traces // partitions),
            "max_open_bytes": max(settings.max_trace_bytes, settings.max_open_bytes // partitions),
            "max_remembered": max(1000, settings.max_remembered // partitions),
        }
    )
