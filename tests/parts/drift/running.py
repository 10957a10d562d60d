"""The part of an aggregator."""

from __future__ import annotations

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.parts.drift.part import DriftPart


def drift_of(aggregator: Aggregator) -> DriftPart:
    part = aggregator.parts["drift"]
    assert isinstance(part, DriftPart)
    return part
