"""What one step has changed, as rows: the same for every store that keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agent.aggregate import Aggregator
from agent.counters import CounterKey
from agent.windows import BucketRow

__all__ = ["Changes", "restore", "take", "worst"]


class Changes(NamedTuple):
    """A bucket or counter of None is deleted; a part of `meta` replaces the one of its name."""

    buckets: Sequence[BucketRow]
    counters: Sequence[tuple[CounterKey, float | None]]
    meta: dict[str, Any]


def take(aggregator: Aggregator) -> Changes:
    """All that changed since the last call. What was taken counts as saved: if writing it fails,
    the aggregator must be given up and restored anew."""
    return Changes(
        [*aggregator.windows.drain(), *aggregator.budgets.drain()],
        aggregator.counters.drain(),
        {**aggregator.drain(), **aggregator.dump()},
    )


def restore(
    aggregator: Aggregator,
    buckets: Sequence[BucketRow],
    counters: Iterable[tuple[CounterKey, float]],
    meta: Mapping[str, Any],
) -> None:
    """Everything that was ever taken and not replaced or deleted, into a new aggregator. Raises
    ValueError, KeyError, TypeError or AssertionError for what makes no sense."""
    # the rows of the error budgets have negative widths
    aggregator.windows.load([row for row in buckets if row[2] >= 0])
    aggregator.budgets.load([row for row in buckets if row[2] < 0], aggregator.windows.now)
    aggregator.counters.load(counters)
    aggregator.load(dict(meta))


def worst(aggregator: Aggregator) -> set[tuple[str, str]]:
    """(service, trace id) whose text to keep: what the page shows or may show next, and what
    alerts name."""
    windows = aggregator.windows
    shown = {
        (service, trace_id)
        for service in windows.services()
        for trace_id in windows.worst_ids(service)
    }
    alerts = aggregator.engine.alerts()
    return shown | {(alert.service, name) for alert in alerts for name in alert.worst}
