"""Results are handed out once what they changed is durable, and never before or twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.clocks import Clocks
from ragmeter.core.counters import CounterKey
from ragmeter.core.score import ScoredTrace
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.store.rows import StateCommit
from ragmeter.store.sqlite import SqliteStore
from ragmeter.trace import Trace

from tests.traces import START, good


def test_results_follow_the_commit_that_makes_them_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    commit = SqliteStore.commit

    def failing_first(store: SqliteStore, step: StateCommit) -> dict[CounterKey, float]:
        if step.upto and "failed" not in events:
            events.append("failed")
            raise sqlite3.OperationalError("disk I/O error")
        counts = commit(store, step)
        if step.upto:
            events.append("durable")
        return counts

    def results(done: Sequence[tuple[Trace, ScoredTrace]]) -> None:
        assert all(scored.results for _, scored in done)
        events.extend(trace.trace_id for trace, _ in done)

    monkeypatch.setattr(SqliteStore, "commit", failing_first)
    paths = {"path": str(tmp_path / "s.sqlite")}
    settings = load_settings(environ={}, overrides={"state": paths})
    agent = EmbeddedAgent(
        settings,
        [],
        clocks=Clocks(lambda: START),
        outputs=AgentOutputs(on_results=results),
        parts=PARTS,
    )
    agent.start()
    try:
        agent.accept([good(trace_id="t-1")], "test")
        agent.wait_idle()
    finally:
        agent.stop(10)
    assert events[:3] == ["failed", "durable", "t-1"]
    assert events.count("t-1") == 1
