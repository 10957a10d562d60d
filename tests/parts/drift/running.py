"""The part of an aggregator, and what it has saved."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.parts.drift.part import DriftPart, DriftState

__all__ = ["drift_of", "state_of"]

_ROWS: TypeAdapter[Any] = TypeAdapter(DriftState)


def drift_of(aggregator: Aggregator) -> DriftPart:
    part = aggregator.parts["drift"]
    assert isinstance(part, DriftPart)
    return part


def state_of(aggregator: Aggregator) -> Any:
    """Every row of the part, as JSON has it."""
    part = drift_of(aggregator)
    rows: list[Any] = [part._clock]
    for saved in (part._services, part._learned):
        rows += [row for _, row in sorted(saved.items())]
    return [_ROWS.dump_python(row, mode="json") for row in rows]
