"""Open traces on a ledger: what is taken in, closed in two steps, and forgotten."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.errors import UnknownVersion
from ragmeter.embedded.open_traces import parts_total
from ragmeter.ingest.spans import LogEvent, SpanEvent
from ragmeter.ingest.stored_spans import serialise_log_events
from ragmeter.kafka.span_records import SpanRecord
from ragmeter.kafka.state.assembly import partition_share, span_body
from ragmeter.kafka.state.ledger import Ledger, LedgerError, LogRecord
from tests.kafka.state.open_spans import OTLP, Clock, counted, record, span, state_of


class Bench:
    """A state and its ledger on a log; nothing fails."""

    def __init__(
        self, clock: Clock, log: list[LogRecord] | None = None, otlp: OtlpSettings = OTLP
    ) -> None:
        self.clock, self.otlp = clock, otlp
        self.log = log if log is not None else []
        self.generation = 0
        self.open()

    def open(self) -> None:
        self.generation += 1
        self.ledger, found = Ledger.recover(0, self.generation, self.log)
        self.state = state_of(self.clock, self.otlp)
        self.state.load(found.rows, found.head)

    def step(self) -> None:
        step = self.state.step()
        self.log += self.ledger.begin(step.rows)
        self.log.append(self.ledger.marker(step.head))
        self.ledger.done()

    def body(self, row: bytes) -> bytes:
        values = dict(self.log)
        value = values[self.ledger.key(row)]
        assert value is not None
        return span_body(Ledger.content(value))

    def take(self, *records: SpanRecord) -> None:
        assert self.state.apply(records) == len(records)
        self.step()

    def ready(self) -> dict[int, list[bytes]]:
        """Lines by trace, of those that are to be handed on."""
        return {
            int(one.trace.hex(), 16): [
                line for row in self.state.rows(one.trace) for line in self.body(row).split(b"\n")
            ]
            for one in self.state.ready()
        }

    def close(self, seconds: float) -> dict[int, list[bytes]]:
        self.clock.at += seconds
        self.state.close_due(100, 10**9)
        self.step()
        found = self.ready()
        for one in self.state.ready():
            self.state.handed_on(one.trace, {("closed", (("why", str(one.why)),)): 1})
        self.step()
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench(Clock())


def test_a_trace_is_closed_in_two_steps_and_forgotten_with_the_second(bench: Bench) -> None:
    one, two, root = span(1, 0), span(1, 1), span(1, 2, root=True)
    bench.take(record(0, one), record(1, two))
    bench.take(record(2, root))
    assert bench.state.gauges()[0][2] == 1
    bench.clock.at += 2.1
    assert bench.state.close_due(10, 10**9) == 1
    assert bench.state.ready() == [], "before the step says so, nothing is handed on"
    bench.step()
    assert bench.ready() == {1: [one.line, two.line, root.line]}
    bench.open()  # whoever takes over finds the same
    assert bench.ready() == {1: [one.line, two.line, root.line]}
    assert [one.why for one in bench.state.ready()] == ["root"]
    bench.state.handed_on(bench.state.ready()[0].trace, {})
    bench.step()
    bench.open()
    assert bench.state.ready() == []
    assert bench.state.gauges() == [
        ("ragmeter_otlp_open_traces", (), 0.0),
        ("ragmeter_otlp_open_bytes", (), 0.0),
    ]
    # closed ids are remembered across a takeover: late spans begin nothing
    bench.take(record(3, span(1, 7)))
    assert counted(bench.state)["late"] == 1
    assert bench.close(60) == {}


def test_what_comes_while_a_trace_is_closing_changes_nothing_of_it(bench: Bench) -> None:
    bench.take(record(0, span(1, 0, root=True)))
    bench.clock.at += 3
    bench.state.close_due(10, 10**9)
    bench.step()
    before = bench.ready()
    bench.open()  # it died while it handed on; the rest of the trace comes only now
    bench.take(record(1, span(1, 1)))
    assert bench.ready() == before
    assert counted(bench.state) == {"accepted": 1, "late": 1}


def test_a_repetition_is_known_by_its_source_whatever_became_of_its_trace(bench: Bench) -> None:
    records = [record(n, span(n, 0, root=True)) for n in range(4)]
    bench.take(*records)
    bench.take(*records)
    assert set(bench.close(3)) == {0, 1, 2, 3}
    bench.open()
    bench.take(*records)
    assert counted(bench.state, "otlp_spans") == {"accepted": 4}
    assert bench.state.counters.get("ragmeter_replayed_total") == 8
    assert bench.close(60) == {}


def test_of_a_source_in_several_records_each_counts_once(bench: Bench) -> None:
    parts = [record(0, span(n, 0, root=True), number=n, count=3) for n in range(3)]
    bench.take(parts[0], parts[2])
    bench.open()  # the score processor died in between: all of them come again
    bench.take(*parts, *parts)
    bench.open()
    bench.take(*parts)
    assert counted(bench.state, "otlp_spans") == {"accepted": 3}
    assert set(bench.close(3)) == {0, 1, 2}


def test_the_same_span_from_two_senders_counts_once(bench: Bench) -> None:
    bench.take(record(0, span(1, 0)), record(1, span(1, 0)))
    bench.open()
    bench.take(record(2, span(1, 0)))
    assert counted(bench.state) == {"accepted": 1, "duplicate": 2}
    ((_, lines),) = bench.close(31).items()
    assert len(lines) == 1


def test_log_events_count_as_such_and_are_kept_beside_the_spans(bench: Bench) -> None:
    log = LogEvent(f"{1:032x}", f"{1:016x}", SpanEvent("gen_ai.user.message", 5, {"content": "q"}))
    (event,) = serialise_log_events([log], Counter())
    bench.take(record(0, event), record(1, span(1, 0, root=True)))
    assert bench.state.counters.get(*parts_total("logs", "accepted")) == 1
    assert bench.state.counters.get(*parts_total("traces", "accepted")) == 1
    assert bench.close(2.1) == {}, "traces are given longer while log events carry content"
    assert len(bench.close(7)[1]) == 2


def test_the_bounds_hold_and_what_is_closed_by_them_is_counted() -> None:
    otlp = OTLP.model_copy(update={"max_open_traces": 100, "max_open_bytes": 10**9})
    bench = Bench(Clock(), otlp=otlp)
    records = [record(n, span(n, 0)) for n in range(400)]
    out: dict[int, list[bytes]] = {}
    while records:
        taken = bench.state.apply(records)
        del records[:taken]
        assert len(bench.state._assembler) <= 125
        out |= bench.close(0)
    assert set(out) == set(range(300))
    assert counted(bench.state, "closed") == {"evicted": 300}
    assert bench.state.gauges()[0][2] == 100


def test_an_id_that_is_no_longer_remembered_may_come_again(bench: Bench) -> None:
    bench.take(record(0, span(1, 0, root=True)))
    assert set(bench.close(3)) == {1}
    bench.clock.at += 4000
    bench.take(record(2, span(1, 5)))
    bench.open()  # the row that said it was closed is of the earlier one
    assert bench.state.ready() == []
    bench.take(record(3, span(1, 6)))
    assert len(bench.close(31)[1]) == 2


def test_ids_that_are_too_many_are_forgotten_in_the_log_as_well() -> None:
    bench = Bench(Clock(), otlp=OTLP.model_copy(update={"max_remembered": 3}))
    for n in range(10):
        bench.take(record(n, span(n, 0, root=True)))
        bench.close(3)
    bench.state.touch()
    bench.step()
    _, found = Ledger.recover(0, 99, bench.log)
    assert sum(row.startswith(b'["x"') for row in found.rows) == 3
    bench.open()
    bench.take(record(20, span(1, 1)), record(21, span(8, 1)))
    assert counted(bench.state, "otlp_spans") == {"accepted": 11, "late": 1}


def test_a_step_without_changes_sweeps_what_was_forgotten(bench: Bench) -> None:
    for n in range(20):
        bench.take(record(n, span(n, 0, root=True)))
    bench.close(3)
    assert not bench.state.changed
    assert bench.ledger.garbage
    for _ in range(4):
        bench.state.touch()
        assert bench.state.changed
        bench.step()
    assert bench.ledger.garbage == 0
    live = {key: value for key, value in bench.log if value is not None}
    gone = {key for key, value in bench.log if value is None}
    texts = [value for key, value in live.items() if key not in gone]
    assert not any(b'"s0"' in text for text in texts), "no text of a closed trace is left"


def test_what_makes_no_sense_is_refused(bench: Bench) -> None:
    state = state_of(bench.clock)
    with pytest.raises(UnknownVersion):
        state.load({}, json.dumps({"v": 2}).encode())
    for rows, head in (
        ({}, b"[]"),
        ({b'["o","zz",1]': b"[1,true,2,[]]\n"}, None),
        ({b'["o","00",1]': b"no json"}, None),
    ):
        bench.step()
        found = Ledger.recover(0, 9, bench.log)[1]
        with pytest.raises(LedgerError):
            state_of(bench.clock).load(rows, head or found.head)


def test_the_bounds_are_shared_by_the_partitions() -> None:
    otlp = OtlpSettings()
    assert partition_share(otlp, 8).max_open_traces == otlp.max_open_traces // 8
    assert partition_share(otlp, 8).max_open_bytes == otlp.max_open_bytes // 8
    assert partition_share(otlp, 10_000).max_open_bytes == otlp.max_trace_bytes
    assert partition_share(otlp, 1) == otlp
