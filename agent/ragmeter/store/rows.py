"""Records that enter and leave the state store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragmeter.core.counters import CounterKey
from ragmeter.core.tiers import MetricScorer, Tier
from ragmeter.trace import Trace
from ragmeter.windows.state import BucketRow


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of the state store.

    Args:
        horizon: The dedupe horizon in event-time seconds (`ragmeter.core.dedupe`).
        synchronous: SQLite's `synchronous` mode.
    """

    horizon: float = 48 * 3600
    synchronous: str = "full"
    overwrite: bool = False


class TraceArrival(NamedTuple):
    """A valid trace on its way in.

    Args:
        timestamp: Event time after the clock check.
        held: Whether it waits for the texts of its passages before it joins the queue.
        trace: What decoding the body gives, if that was done and should not be done again.
    """

    service: str
    trace_id: str
    timestamp: float
    body: bytes
    held: bool = False
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The position up to which a source was read; stored together with what it delivered."""

    source: str
    position: int


@dataclass(frozen=True, slots=True)
class AcceptedArrivals:
    """For each arrival whether it was new; the others were duplicates.

    Args:
        stored: Whether everything is in the file; else the commit of the arrivals stores it.
    """

    fresh: tuple[bool, ...]
    stored: bool = True

    @property
    def accepted(self) -> int:
        """Number of new traces."""
        return sum(self.fresh)

    @property
    def duplicates(self) -> int:
        """Number of duplicates."""
        return len(self.fresh) - self.accepted


class QueuedTrace(NamedTuple):
    """A stored trace that waits to be scored; `seq` orders the queue.

    Args:
        trace: The decoded body; None if it was not kept.
    """

    seq: int
    timestamp: float
    received: float
    body: bytes
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class TierDraw:
    """A trace that a slow tier has drawn.

    Args:
        probability: Inclusion probability of the draw.
        pairs: The promised (metric, scorer) pairs: each gets one result, even if the settings
            change meanwhile.
        cheap: Built-in scores by metric.
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
    """A stored `TierDraw`; `id` orders them."""

    id: int
    draw: TierDraw


@dataclass(frozen=True, slots=True)
class PendingDraws:
    """The number of traces of a service that wait for a tier, each for the same pairs."""

    tier: Tier
    service: str
    pairs: tuple[MetricScorer, ...]
    number: int


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A notification.

    Args:
        id: Its unique idempotency key.
        key: Items of one key are delivered in order: "resolved" must not overtake "firing".
    """

    id: str
    key: str
    body: str
    created: float
    attempts: int = 0


@dataclass(slots=True)
class StateCommit:
    """One atomic step: the traces that are done, and their effect.

    Args:
        upto: Queue entries with a `seq` up to this are done.
        buckets: Changed buckets; those without data are deleted.
        counters: Changed totals; those of None are deleted.
        evidence: Rows of (service, trace id, event time, JSON).
        forget_evidence: (service, trace id) of evidence to delete.
        outbox: New notifications.
        delivered: Ids of notifications to delete.
        draws: Traces that wait for a slow tier from now on.
        finished: Ids of drawn traces that are done.
        also: Further statements of the transaction.
        meta: Changed values by name, JSON-able.
        forget_meta: Names of values to delete.
    """

    upto: int
    buckets: Sequence[BucketRow] = ()
    counters: Sequence[tuple[CounterKey, float | None]] = ()
    evidence: Sequence[tuple[str, str, float, bytes]] = ()
    forget_evidence: Sequence[tuple[str, str]] = ()
    outbox: Sequence[OutboxItem] = ()
    delivered: Sequence[str] = ()
    draws: Sequence[TierDraw] = ()
    finished: Sequence[int] = ()
    also: Callable[[sqlite3.Connection], None] | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    forget_meta: Sequence[str] = ()


@dataclass(slots=True)
class SavedState:
    """The state that a restart needs."""

    buckets: list[BucketRow]
    counters: list[tuple[CounterKey, float]]
    meta: dict[str, Any]
    outbox: Sequence[OutboxItem] = ()
    evidence: Sequence[tuple[str, str]] = ()
