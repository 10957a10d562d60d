"""Traces wait for their texts without holding anybody up, and are never lost or counted twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.errors import QueueFull
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.store.pending import HeldTraceTable
from ragmeter.store.sqlite import SqliteStore

from tests.traces import trace_dict
from tests.waiting import stop_agent, until

TEXTS = {"kb-1": "Click Forgot password on the login page to reset it. Ask a@b.example."}


class Slow:
    """Stands in for a source's lookup: `open` lets it answer."""

    def __init__(self) -> None:
        self.open = True

    async def fetch(self, name: str) -> str | None:
        while not self.open:  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.01)
        return TEXTS.get(name)

    async def close(self) -> None: ...


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    one = Slow()
    monkeypatch.setattr("ragmeter.ingest.http_lookup.HttpLookup", lambda source: one)
    return one


@contextmanager
def running(folder: Path, *, sources: bool = True, **more: Any) -> Iterator[EmbeddedAgent]:
    source = {"name": "kb", "url": "http://h/{id}", "timeout_seconds": 30}
    resolvers = {"sources": [source] if sources else [], **more.pop("resolvers", {})}
    paths = {"path": str(folder / "s.sqlite")}
    tree = {"state": paths, "resolvers": resolvers, **more}
    agent = EmbeddedAgent(load_settings(environ={}, overrides=tree), [], parts=PARTS)
    agent.start()
    try:
        yield agent
    finally:
        stop_agent(agent, 10)


def feed(agent: EmbeddedAgent, *traces: dict[str, Any], live: bool = True) -> None:
    items = [decode_trace(json.dumps(one).encode(), 10**6) for one in traces]
    agent.accept([(item, n) for n, item in enumerate(items)], "test", live=live, written=set())


def bare(number: int, *names: str) -> dict[str, Any]:
    return trace_dict(number, passages=[{"id": name} for name in names or ("kb-1",)])


def reasons(agent: EmbeddedAgent) -> dict[str, float]:
    """Results of built-in relevance by state or reason."""
    found: dict[str, float] = {}
    with agent.lock():
        for (name, labels), value in agent.counters.items():
            by = dict(labels)
            pair = (by.get("metric"), by.get("scorer"))
            if name == "ragmeter_results_total" and pair == ("relevance", "builtin"):
                found[by.get("reason") or by["state"]] = value
    return found


def test_a_trace_is_scored_on_the_text_that_was_looked_up(tmp_path: Path, slow: Slow) -> None:
    with running(tmp_path, privacy={"redact": ["email"]}) as agent:
        feed(agent, bare(1), bare(2, "kb-1", "unknown"), trace_dict(3))
        agent.wait_idle()
        assert reasons(agent) == {"scored": 2, "passages_id_only": 1}
        kept = agent.evidence("bot", "t1")
        assert kept is not None
        (passage,) = kept["trace"]["passages"]
        assert passage["text"].endswith("Ask [email].")  # text from outside, as any other
        assert passage["resolved_by"] == "kb"
        assert len(passage["text_sha256"]) == 64
        labels = (("resolver", "kb"), ("outcome", "found"))
        assert agent.counters.get("ragmeter_resolver_requests_total", labels) == 1


def test_a_source_that_hangs_holds_nobody_up(tmp_path: Path, slow: Slow) -> None:
    slow.open = False
    with running(tmp_path) as agent:
        feed(agent, bare(1), *[trace_dict(n) for n in range(2, 12)])
        until(lambda: reasons(agent) == {"scored": 10})
        assert ("ragmeter_held_traces", (), 1.0) in agent.gauges()
        slow.open = True
        agent.wait_idle()
        assert reasons(agent) == {"scored": 11}
        feed(agent, bare(1))  # known: its id was taken when it was accepted
        agent.wait_idle()
        assert reasons(agent) == {"scored": 11}


def test_what_waits_survives_the_end_of_the_process(tmp_path: Path, slow: Slow) -> None:
    slow.open = False
    with running(tmp_path) as agent:
        feed(agent, bare(1))
        until(lambda: ("ragmeter_held_traces", (), 1.0) in agent.gauges())
        began = time.monotonic()
    assert time.monotonic() - began < 25, "less than a source may take"
    slow.open = True
    with running(tmp_path) as agent:
        agent.wait_idle()
        assert reasons(agent) == {"scored": 1}


def test_without_sources_what_waited_goes_on(tmp_path: Path, slow: Slow) -> None:
    slow.open = False
    with running(tmp_path) as agent:
        feed(agent, bare(1))
    with running(tmp_path, sources=False) as agent:
        agent.wait_idle()
        assert reasons(agent) == {"no_text": 1}


def test_over_the_bound_live_traces_go_on_without_and_a_file_waits(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.embedded.passage_resolution.MAX_HELD_TRACES", 1)
    slow.open = False
    with running(tmp_path) as agent:
        feed(agent, bare(1))
        feed(agent, bare(2))
        until(lambda: reasons(agent) == {"no_text": 1})
        with pytest.raises(QueueFull):
            feed(agent, bare(3), live=False)
        slow.open = True
        agent.wait_idle()
        assert reasons(agent) == {"no_text": 1, "scored": 1}


def test_texts_that_make_a_trace_too_large_are_not_taken(tmp_path: Path, slow: Slow) -> None:
    slow.open = True
    with running(tmp_path, limits={"trace_bytes": 1024}) as agent:
        TEXTS["long"] = "word " * 1000
        feed(agent, bare(1, "long"))
        agent.wait_idle()
        assert reasons(agent) == {"resolver_error": 1}


def test_a_release_is_whole_or_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    held = HeldTraceTable(store)
    with store.transaction() as db:
        db.executemany(
            "INSERT INTO held(timestamp, received, body) VALUES(?, 0, ?)", [(1, b"a"), (2, b"b")]
        )
    rows = held.rows(0, 10)
    with pytest.raises(Exception, match="NOT NULL"):
        held.release([rows[0], type(rows[0])(rows[1].id, None)])  # type: ignore[arg-type]
    assert (len(held.rows(0, 10)), store.take(0, 9)) == (2, [])
    held.release(rows, {("x_total", ()): 2})
    assert [(one.timestamp, one.body) for one in store.take(0, 9)] == [(1.0, b"a"), (2.0, b"b")]
    assert held.rows(0, 10) == []
    assert store.saved().counters == [(("x_total", ()), 2.0)]
    store.close()
