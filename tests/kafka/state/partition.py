"""A state of one partition for tests, records for it, and what its steps have made durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import parse_rules
from ragmeter.config.settings import Settings
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import Rows
from ragmeter.scoring.scorer import Scorer
from ragmeter.store.rows import OutboxItem
from tests.embedded.test_agent import ERRORS
from tests.embedded.test_agent import settings as settings_of
from tests.traces import START, make_trace

__all__ = ["SCORER", "K", "commit", "flat", "notify", "record", "reloaded", "state_of"]

SCORER = Scorer()
K = 8


def notify(alert: Alert, now: float) -> list[OutboxItem]:
    return [OutboxItem(f"{alert.id}-{alert.state}", alert.id, "{}", now)]


def state_of(settings: Settings | None = None, dedupe: float = 48 * 3600) -> PartitionState:
    return PartitionState(
        settings or settings_of(Path("unused")),
        parse_rules([ERRORS]),
        SCORER.pairs,
        width=2 * K,
        dedupe=dedupe,
        clock=lambda: START,
        monotonic=lambda: 0.0,
        notify=notify,
    )


def record(offset: int, partition: int = 0, **changes: Any) -> ScoreRecord:
    changes.setdefault("timestamp", START + offset)
    scored = SCORER.score(make_trace(offset, **changes)).trace
    return ScoreRecord(scored, SourceOffset(0, partition, offset))


def flat(step_rows: Rows, rows: dict[bytes, bytes]) -> None:
    for key, data in step_rows.items():
        if data is None:
            rows.pop(key, None)
        else:
            rows[key] = data


def commit(state: PartitionState, rows: dict[bytes, bytes]) -> bytes:
    step = state.step()
    flat(step.rows, rows)
    return step.head


def reloaded(rows: dict[bytes, bytes], head: bytes, **changes: Any) -> PartitionState:
    state = state_of(**changes)
    state.load(rows, head)
    return state
