from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.clocks import Clocks
from ragmeter.core.errors import QueueFull, StateUnavailable
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.trace_closer import TraceCloser
from ragmeter.ingest.requests.extraction import ExtractedRequests
from ragmeter.ingest.span_batches import SpanBatch
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.ingest.stored_spans import serialise_log_events, serialise_spans
from ragmeter.store.pending import OpenSpanTable
from ragmeter_exporters.snapshot import take_snapshot

from tests.traces import START, make_trace


def extract(spans: Sequence[Span]) -> ExtractedRequests:
    """A trace of ours for each root; `broken` as a name is a mistake of ours."""
    found = ExtractedRequests()
    for span in spans:
        if span.name == "broken":
            raise RuntimeError("a bug")
        if span.name == "noise":
            found.dropped["no_llm_no_retriever"] += 1
        elif not span.parent_id:
            text = "".join(str(event.attributes["text"]) for event in span.events)
            answer = f"{len(spans)} spans {text}" + "x" * 5000 * (span.name == "large")
            number = int(span.trace_id[-4:], 16)
            found.traces.append(
                make_trace(number, trace_id=f"{number}-{span.span_id[-1]}", answer=answer)
            )
    return found


class Bench:
    """An agent that does not score, and a closer that is moved by hand."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        paths = {"path": str(folder / "s.sqlite")}
        self.dead = folder / "s.sqlite.dead-letters.jsonl"
        self.settings = load_settings(environ={}, overrides={"state": paths, "limits": limits})
        self.at = START
        self.open()

    def open(self) -> None:
        self.agent = EmbeddedAgent(
            self.settings, [], clocks=Clocks(self.now, self.now), parts=PARTS
        )
        self.rows = OpenSpanTable(self.agent._store)
        self.closer = self.agent._closer
        self.closer._extract = extract

    def now(self) -> float:
        return self.at

    def send(self, trace: int, *names: str, at: int = 0) -> None:
        spans = [
            Span(f"{trace:032x}", f"{at + n:016x}", "" if n + at == 0 else "f" * 16, name)
            for n, name in enumerate(names)
        ]
        self.agent.assembly.accept([SpanBatch("traces", serialise_spans(spans, Counter()))])

    def close(self, seconds: float = 2.0) -> int:
        self.at += seconds
        return self.closer.close_due()

    def queued(self) -> list[tuple[str, str]]:
        found = [json.loads(one.body) for one in self.agent._store.take(0, 100)]
        return [(trace["trace_id"], trace["answer"]) for trace in found]

    def counts(self) -> dict[str, float]:
        """By name and labels; what is shown is what is durable."""
        shown = {key: value for key, value in self.agent.counters.items() if value}
        assert shown == dict(self.agent._store.saved().counters)
        return {
            "/".join((name[9:], *dict(labels).values())): v for (name, labels), v in shown.items()
        }

    def letters(self) -> list[dict[str, Any]]:
        lines = self.dead.read_text().splitlines() if self.dead.exists() else []
        return [json.loads(line) for line in lines]

    def restart(self) -> None:
        self.agent._store.close()
        self.open()


@pytest.fixture(params=[2**20, 0], ids=["copies", "no copies"])
def bench(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    monkeypatch.setattr("ragmeter.ingest.open_traces.MAX_COPY_BYTES", request.param)
    bench = Bench(tmp_path, queue=3, trace_bytes=4096)
    yield bench
    bench.agent._store.close()


@pytest.mark.parametrize(("read", "method"), [("assembly", "gauges"), ("counters", "items")])
def test_a_trace_that_closes_during_a_scrape_is_open_or_received(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, read: str, method: str
) -> None:
    bench.send(1, "root")
    original = getattr(getattr(bench.agent, read), method)

    def read_and_close() -> list[Any]:
        found = list(original())
        bench.close()
        return found

    monkeypatch.setattr(getattr(bench.agent, read), method, read_and_close)
    snapshot = take_snapshot(bench.agent)
    opened = next(n for name, _, n in snapshot.gauges if name == "ragmeter_otlp_open_traces")
    received = dict(snapshot.counters).get(
        ("ragmeter_traces_received_total", (("source", "otlp"),)), 0
    )
    assert opened + received >= 1


def test_a_complete_trace_goes_to_the_queue_and_its_spans_go(bench: Bench) -> None:
    bench.send(1, "root", "llm")
    bench.send(2, "root")
    assert bench.close(1.9) == 0
    assert bench.close(0.1) == 2
    assert bench.queued() == [("1-0", "2 spans "), ("2-0", "1 spans ")]
    assert bench.rows.ids() == set()
    counts = bench.counts()
    assert counts["otlp_spans_total/traces/accepted"] == 3
    assert counts["otlp_traces_total/root"] == 2
    assert counts["traces_received_total/otlp"] == 2
    assert {
        ("ragmeter_otlp_open_traces", (), 0.0),
        ("ragmeter_otlp_open_bytes", (), 0.0),
    } <= set(bench.agent.gauges())


def test_log_events_are_in_the_span_that_is_extracted(bench: Bench) -> None:
    log = LogEvent(f"{1:032x}", f"{0:016x}", SpanEvent("gen_ai.choice", 5, {"text": "hello"}))
    lost = LogEvent(f"{1:032x}", f"{9:016x}", SpanEvent("gen_ai.choice", 5, {"text": "lost"}))
    bench.agent.assembly.accept([SpanBatch("logs", serialise_log_events([log, lost], Counter()))])
    bench.send(1, "root")
    assert bench.close(6) == 1
    assert bench.queued() == [("1-0", "1 spans hello")]
    assert bench.counts()["otlp_spans_total/logs/no_span"] == 1


def test_what_is_no_request_is_counted_and_gone(bench: Bench) -> None:
    bench.send(1, "noise")
    assert bench.close() == 1
    assert bench.queued() == []
    assert bench.rows.ids() == set()
    assert bench.counts()["otlp_dropped_total/no_llm_no_retriever"] == 1


def test_a_trace_that_cannot_be_read_is_a_dead_letter_and_costs_no_other(bench: Bench) -> None:
    bench.send(1, "broken", "text of the span")
    bench.send(2, "root")
    assert bench.close() == 2
    assert bench.queued() == [("2-0", "1 spans ")]
    (letter,) = bench.letters()
    assert (letter["reason"], letter["source"]) == ("internal_error", "otlp")
    assert [json.loads(line)[3] for line in letter["raw"].splitlines()] == [
        "broken",
        "text of the span",
    ]
    assert bench.counts()["dead_letters_total/internal_error"] == 1


def test_a_trace_of_ours_that_is_too_large_is_a_dead_letter(bench: Bench) -> None:
    bench.send(1, "large")
    assert bench.close() == 1
    assert (bench.queued(), bench.letters()[0]["reason"]) == ([], "too_large")


def test_damaged_bytes_cost_their_line_and_stop_nothing(bench: Bench) -> None:
    bench.send(1, "root", "llm")
    bench.send(2, "root")
    with bench.agent._store.transaction() as db:
        db.execute("UPDATE open_spans SET body=x'00ff' WHERE id=1")
        db.execute("UPDATE open_spans SET body=17 WHERE id=2")
    bench.restart()  # of what came before nothing is in memory
    bench.send(1, "late llm", at=7)
    assert bench.close() == 2
    assert bench.counts()["otlp_spans_total/traces/corrupt"] == 2
    assert bench.rows.ids() == set()


def test_a_full_queue_or_disk_delays_and_loses_nothing(bench: Bench) -> None:
    bench.send(1, "root")
    bench.close()
    for trace in (2, 3, 4):
        bench.send(trace, "root")
    with pytest.raises(QueueFull):
        bench.close()
    assert bench.closer._step() == 0.25
    accept = bench.closer._intake.accept

    def full(*_: Any, **__: Any) -> Any:
        raise StateUnavailable("disk full")

    bench.closer._intake.accept = full  # type: ignore[method-assign]
    assert bench.closer._step() == 1.0
    assert bench.closer.problem is not None
    assert "disk full" in bench.closer.problem
    bench.closer._intake.accept = accept  # type: ignore[method-assign]
    waiting = bench.agent._store.take(0, 10)
    bench.agent._worker._process([(queued, None) for queued in waiting])  # it is worked off
    assert bench.closer._step() == 0.25
    assert bench.closer.problem is None
    assert [name for name, _ in bench.queued()] == ["2-0", "3-0", "4-0"]


def test_killed_before_the_step_it_is_redone_and_after_it_is_not(bench: Bench) -> None:
    """What `kill -9` leaves is what is durable: another agent over the same file."""
    bench.send(1, "root")
    bench.send(2, "broken")
    accept = bench.agent._store.accept

    def killed(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError("killed between the dead letters and the step")

    bench.agent._store.accept = killed  # type: ignore[method-assign]
    with pytest.raises(StateUnavailable):
        bench.close()
    bench.agent._store.accept = accept  # type: ignore[method-assign]
    assert bench.queued() == []
    bench.restart()
    assert bench.close() == 2
    assert [name for name, _ in bench.queued()] == ["1-0"]
    assert len(bench.letters()) == 1
    bench.restart()
    bench.send(1, "root", "again")
    assert bench.close(1000) == 0
    assert [name for name, _ in bench.queued()] == ["1-0"]
    assert bench.counts()["otlp_spans_total/traces/late"] == 2


def test_a_trace_that_was_forgotten_is_still_no_second_one(bench: Bench) -> None:
    """The ids of traces of ours are known for longer than closed ids."""
    bench.send(1, "root")
    bench.close()
    bench.at += 4000
    bench.send(1, "root")
    assert bench.close() == 1
    assert len(bench.queued()) == 1
    assert bench.counts()["traces_duplicate_total/otlp"] == 1
    horizon = ("ragmeter_dedupe_horizon_seconds", (), 48 * 3600.0)
    assert horizon in bench.agent.gauges()


def test_a_bug_of_the_closer_is_fatal_and_a_damaged_file_too(bench: Bench) -> None:
    notified: list[Exception] = []
    for error in (RuntimeError("bug"), sqlite3.DatabaseError("malformed")):
        closer = TraceCloser(
            bench.agent.assembly,
            bench.rows,
            bench.closer._intake,
            extract,
            4096,
            written=set(),
            on_damage=notified.append,
        )

        def broken(error: Exception = error) -> int:
            raise error

        closer.close_due = broken  # type: ignore[method-assign]
        closer.start()
        closer._thread.join(5)
        assert closer.stop()
        assert (closer.fatal is not None) == isinstance(error, RuntimeError)
    assert [str(error) for error in notified] == ["malformed"]
