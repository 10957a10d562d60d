from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.counters import CounterKey
from ragmeter.core.errors import QueueFull
from ragmeter.ingest.assembler import AssemblyBounds, PartFate
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.span_batches import SpanBatch
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.ingest.stored_spans import serialise_log_events, serialise_spans
from ragmeter.store.pending import OpenSpanTable, closing_statements
from ragmeter.store.sqlite import SqliteStore


def spans(trace: int, *numbers: int, root: bool = False) -> SpanBatch:
    found = [
        Span(f"{trace:032x}", f"{number:016x}", "" if root else "f" * 16) for number in numbers
    ]
    return SpanBatch("traces", serialise_spans(found, Counter()))


class Bench:
    """An assembly over a real state file, with a clock that is set by hand."""

    def __init__(self, path: Path, **bounds: int) -> None:
        self.at = 1_000_000.0
        self.path = path
        self.bounds = AssemblyBounds(**bounds)
        self.counts: Counter[str] = Counter()
        self.open()

    def open(self) -> None:
        self.store = SqliteStore(self.path)
        self.rows = OpenSpanTable(self.store)
        self.assembly = OpenTraces(
            OtlpSettings(),
            self.rows,
            self.write,
            clock=self.now,
            monotonic=self.now,
            bounds=self.bounds,
        )

    def now(self) -> float:
        return self.at

    def write(self, write: Callable[[], Mapping[CounterKey, float]]) -> None:
        for (_, labels), number in write().items():
            self.counts["/".join(value for _, value in labels)] += int(number)

    def close(self) -> list[str]:
        due = [one.trace for one in self.assembly.due(100, 10**9)]
        self.store.accept([], self.at, also=closing_statements(self.assembly.closing(due)))
        self.assembly.done(due)
        return [trace.hex()[-2:] for trace in due]

    def restart(self) -> None:
        self.store.close()
        self.open()


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []

    def bench(**bounds: int) -> Bench:
        made.append(Bench(tmp_path / "s.sqlite", **bounds))
        return made[-1]

    yield bench
    for one in made:
        one.store.close()


@pytest.fixture
def bench(make: Make) -> Bench:
    return make()


def test_each_request_is_told_what_became_of_its_spans(bench: Bench) -> None:
    refused = SpanBatch("logs", [], {"no_content": 2})
    fates = bench.assembly.accept([spans(1, 1, 2), spans(1, 2, 3), refused])
    assert fates == [
        Counter({PartFate.ACCEPTED: 2}),
        Counter({PartFate.ACCEPTED: 1, PartFate.DUPLICATE: 1}),
        Counter(),
    ]
    assert bench.counts == {"traces/accepted": 3, "traces/duplicate": 1, "logs/no_content": 2}
    assert bench.store.saved().counters  # the same, durable
    assert bench.assembly.gauges()[0] == ("ragmeter_otlp_open_traces", (), 1.0)


def test_a_restart_knows_what_is_open_and_what_is_closed(bench: Bench) -> None:
    bench.assembly.accept([spans(1, 1, root=True), spans(2, 1)])
    bench.at += 2
    assert bench.close() == ["01"]
    bench.restart()
    (fates,) = bench.assembly.accept(
        [SpanBatch("traces", [*spans(1, 7).parts, *spans(2, 1, 2).parts])]
    )
    assert fates == Counter({PartFate.LATE: 1, PartFate.DUPLICATE: 1, PartFate.ACCEPTED: 1})
    bench.at += 30
    assert bench.close() == ["02"]
    assert bench.rows.ids() == set()


def test_what_could_not_be_written_was_not_taken(bench: Bench) -> None:
    def broken(write: Callable[[], Mapping[CounterKey, float]]) -> None:
        raise sqlite3.OperationalError("disk full")

    bench.assembly._write = broken
    with pytest.raises(sqlite3.OperationalError):
        bench.assembly.accept([spans(1, 1)])
    bench.assembly._write = bench.write
    assert bench.assembly.accept([spans(1, 1)]) == [Counter({PartFate.ACCEPTED: 1})]
    assert len(bench.rows.ids()) == 1


def test_a_trace_that_is_being_closed_takes_no_more_but_after_a_kill(bench: Bench) -> None:
    bench.assembly.accept([spans(1, 1, root=True)])
    bench.at += 2
    assert len(bench.assembly.due(10, 10**9)) == 1
    assert bench.assembly.accept([spans(1, 2)]) == [Counter({PartFate.LATE: 1})]
    bench.restart()  # killed before it was closed
    assert bench.assembly.accept([spans(1, 2)]) == [Counter({PartFate.ACCEPTED: 1})]
    bench.at += 2
    assert bench.close() == ["01"]


def test_when_too_much_is_open_nothing_is_taken_until_some_is_closed(make: Make) -> None:
    bench = make(open_traces=2)
    bench.assembly.accept([spans(1, 1), spans(2, 1), spans(3, 1)])
    with pytest.raises(QueueFull):
        bench.assembly.accept([spans(4, 1)])
    assert bench.close() == ["01"]
    bench.assembly.accept([spans(4, 1)])


def test_ids_are_forgotten_in_the_file_too(make: Make) -> None:
    bench = make(remembered=1)
    for number in (1, 2, 3):
        bench.assembly.accept([spans(number, 1, root=True)])
        bench.at += 2
        assert bench.close() == [f"{number:02x}"]
    assert [trace[-1] for trace, _ in bench.rows.restore()[1]] == [2, 3]  # 2 goes with the next


def test_damaged_rows_are_counted_and_cost_nothing_else(bench: Bench) -> None:
    bench.assembly.accept([spans(1, 1)])
    with bench.store.transaction() as db:
        db.execute(
            "INSERT INTO open_spans(trace, arrived, root, size, keys, body)"
            " VALUES('odd', 0, 0, 0, 0, 0)"
        )
    bench.restart()
    assert bench.counts["traces/corrupt"] == 1
    assert bench.assembly.gauges()[0][2] == 1.0


def test_log_events_open_a_trace_and_count_once(bench: Bench) -> None:
    event = LogEvent(f"{1:032x}", f"{1:016x}", SpanEvent("gen_ai.choice", 5))
    batch = SpanBatch("logs", serialise_log_events([event], Counter()))
    assert bench.assembly.accept([batch, batch])[1] == Counter({PartFate.DUPLICATE: 1})
    bench.assembly.accept([spans(1, 1, root=True)])
    bench.at += 5.9
    assert bench.close() == []
    bench.at += 0.1
    assert bench.close() == ["01"]
