"""A state of one partition for tests, records for it, and what its steps have made durable."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.config.settings import Settings
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset
from ragmeter.kafka.scores_topic import decode_scores_message
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.kafka.state.rows import Rows
from ragmeter.parts.collection import document_kinds
from ragmeter.parts.views import Incident
from ragmeter.scoring.scorer import Scorer
from ragmeter.store.rows import OutboxItem

from tests.embedded.test_agent import ERRORS
from tests.embedded.test_agent import settings as settings_of
from tests.traces import START, make_trace

__all__ = [
    "SCORER",
    "Owned",
    "apply",
    "commit",
    "crashing",
    "flat",
    "notify",
    "record",
    "reloaded",
    "split_row_key",
    "state_of",
]

SCORER = Scorer()
KINDS = document_kinds(PARTS, AgentSettings())
S = TypeVar("S")


class Owned:
    """As a state group that owns these states by partition."""

    def __init__(self, held: dict[int, Any] | None = None) -> None:
        self.held = {} if held is None else held
        self.lock = threading.RLock()

    def states(self, kind: type[S]) -> dict[int, S]:
        return {number: state for number, state in self.held.items() if isinstance(state, kind)}


def notify(incident: Incident, now: float) -> list[OutboxItem]:
    body = json.dumps(incident.detail)
    return [OutboxItem(f"{incident.id}-{incident.state}", incident.id, body, now)]


def state_of(
    settings: Settings | None = None, dedupe: float = 48 * 3600, scorer: Scorer = SCORER
) -> PartitionState:
    return PartitionState(
        settings or settings_of(Path("unused")),
        parse_rules([ERRORS]),
        scorer.pairs,
        dedupe=dedupe,
        clock=lambda: START,
        monotonic=lambda: 0.0,
        notify=notify,
        parts=PARTS,
    )


def record(offset: int, partition: int = 0, **changes: Any) -> ScoreRecord:
    changes.setdefault("timestamp", START + offset)
    scored = SCORER.score(make_trace(offset, **changes)).trace
    return ScoreRecord(scored, SourceOffset(partition, offset))


def split_row_key(key: bytes) -> tuple[str, list[Any]]:
    kind, *parts = json.loads(key)
    return kind, parts


def flat(step_rows: Rows, rows: dict[bytes, bytes]) -> None:
    for key, data in step_rows.items():
        if data is None:
            rows.pop(key, None)
        else:
            rows[key] = data


def apply(state: PartitionState, records: Iterable[ScoresRecord | Sequence[ScoreRecord]]) -> None:
    for one in records:
        many: Any = one if isinstance(one, list) else [one]
        for record in many:
            state.apply(record)
    state.settle()


def commit(state: PartitionState, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The rows, with those of the step."""
    flat(state.step(), rows)
    return rows


def reloaded(rows: dict[bytes, bytes], **changes: Any) -> PartitionState:
    state = state_of(**changes)
    state.load(rows)
    return state


def crashing(
    rng: random.Random,
    log: Sequence[bytes],
    load: Callable[[dict[bytes, bytes]], PartitionState],
    sizes: Sequence[int] = (1, 2, 7, 40, 200),
) -> dict[bytes, bytes]:
    """The rows of all records of a log, with crashes before and after commits."""
    rows: dict[bytes, bytes] = {}
    committed = 0
    crashes = 0
    while committed < len(log):
        state = load(dict(rows))
        at = committed
        while at < len(log):
            batch = log[at : at + rng.choice(sizes)]
            at += len(batch)
            for data in batch:
                apply(state, [decode_scores_message(data, KINDS)])
            if crashes < 8 and rng.random() < 0.4:
                crashes += 1
                break
            if rng.random() < 0.7:  # else with the step after
                commit(state, rows)
                committed = at
        else:
            commit(state, rows)
            committed = at
    assert crashes
    return rows
