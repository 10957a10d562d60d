"""What is saved of drift detection, through JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter
from ragmeter.parts.drift.monitor import DriftMonitor, MonitorHead
from ragmeter.parts.drift.score_histograms import ScoreRow
from ragmeter.parts.drift.series_monitors import SavedMonitor

_T = TypeVar("_T")


@dataclass
class MonitorState:
    head: MonitorHead
    monitors: list[SavedMonitor]
    scores: list[ScoreRow]


def saved(one: object) -> Any:
    """What JSON holds of an object."""
    return json.loads(json.dumps(TypeAdapter(type(one)).dump_python(one, mode="json")))


def copied(one: _T) -> _T:
    """An object that is restored from what is saved of it."""
    return TypeAdapter(type(one)).validate_python(saved(one))


def state_of(monitor: DriftMonitor) -> Any:
    monitors = [one for of_service in monitor.monitors().values() for one in of_service]
    return saved(MonitorState(monitor.head(), monitors, monitor.scores()))


def restore(monitor: DriftMonitor, state: Any) -> None:
    found = TypeAdapter(MonitorState).validate_python(state)
    monitor.restore(found.head, found.monitors, found.scores)
