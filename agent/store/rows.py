"""Records that enter and leave the state store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragmeter.core.counters import CounterKey
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.windows.state import BucketRow


@dataclass(frozen=True, slots=True)
class TraceArrival:
    """A valid trace on its way in. `timestamp` is event time after the clock check. `held`: it
    waits for the texts of its passages before it joins the queue."""

    service: str
    trace_id: str
    timestamp: float
    body: bytes
    held: bool = False


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a source has been read: durable together with what it delivered."""

    source: str
    position: int


@dataclass(frozen=True, slots=True)
class AcceptedArrivals:
    """`fresh` says for each arrival whether it was new; the others were duplicates."""

    fresh: tuple[bool, ...]

    @property
    def accepted(self) -> int:
        return sum(self.fresh)

    @property
    def duplicates(self) -> int:
        return len(self.fresh) - self.accepted


@dataclass(frozen=True, slots=True)
class QueuedTrace:
    """A durable trace that waits for its score. `seq` orders the queue."""

    seq: int
    timestamp: float
    received: float
    body: bytes


@dataclass(frozen=True, slots=True)
class TierDraw:
    """A trace that a slow tier has drawn, with the inclusion probability that held.

    `pairs` are the (metric, scorer) pairs that were promised for it: each gets one result,
    whatever the configuration says by then. `stratum` is what it was drawn from, `cheap` the
    built-in scores by metric.
    """

    tier: Tier
    service: str
    timestamp: float
    probability: float
    pairs: tuple[MetricScorer, ...]
    body: bytes
    stratum: str = ""
    cheap: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredDraw:
    """A `Draw` that is durable; `id` orders them."""

    id: int
    draw: TierDraw


@dataclass(frozen=True, slots=True)
class PendingDraws:
    """So many traces of a service wait for a tier, each for these pairs."""

    tier: Tier
    service: str
    pairs: tuple[MetricScorer, ...]
    number: int


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One notification. `id` is unique and its idempotency key; `created` is wall time.

    Items of one `key` are delivered in order: "resolved" must not overtake "firing".
    """

    id: str
    key: str
    body: str
    created: float
    attempts: int = 0


@dataclass(slots=True)
class StateCommit:
    """One atomic step: queue entries up to `upto` and the `finished` drawn traces (ids) are done,
    and this is their effect. `draws` are the traces that wait for a slow tier from now on.

    A bucket or counter of None is deleted. `evidence` rows are (service, trace id, event time,
    JSON bytes). `meta` are JSON-able values by name. `also` runs in the same transaction.
    """

    upto: int
    buckets: Sequence[BucketRow] = ()
    counters: Sequence[tuple[CounterKey, float | None]] = ()
    evidence: Sequence[tuple[str, str, float, bytes]] = ()
    forget_evidence: Sequence[tuple[str, str]] = ()
    outbox: Sequence[OutboxItem] = ()
    draws: Sequence[TierDraw] = ()
    finished: Sequence[int] = ()
    also: Callable[[sqlite3.Connection], None] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SavedState:
    """All that a restart needs."""

    buckets: list[BucketRow]
    counters: list[tuple[CounterKey, float]]
    evidence: list[tuple[str, str]]
    meta: dict[str, Any]
