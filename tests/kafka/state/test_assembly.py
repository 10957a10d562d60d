"""Open traces: what is taken in, closed and forgotten."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest
from ragmeter.core.errors import UnknownVersion
from ragmeter.ingest.assembler import BOUNDS, AssemblyBounds, CloseReason
from ragmeter.ingest.span_batches import parts_total
from ragmeter.ingest.spans import LogEvent, SpanEvent
from ragmeter.ingest.stored_spans import StoredPart, serialise_log_events
from ragmeter.kafka.origins import Origin
from ragmeter.kafka.state.assembly import AssemblyState, partition_share
from ragmeter.kafka.state.rows import HEAD, MalformedState

from tests.kafka.state.open_spans import OTLP, Clock, counted, record, span, state_of
from tests.kafka.state.partition import flat


class Bench:
    """A state and the rows of its steps; nothing fails."""

    def __init__(self, clock: Clock, bounds: AssemblyBounds | None = None) -> None:
        self.clock = clock
        self.bounds = bounds
        self.rows: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        self.state = state_of(self.clock, self.bounds)
        self.state.load(self.rows)

    def step(self) -> None:
        flat(self.state.step(), self.rows)

    def take(self, *records: Sequence[StoredPart]) -> None:
        assert self.state.apply(records)
        self.step()

    def close(self, seconds: float) -> dict[int, list[bytes]]:
        """Lines by trace."""
        self.clock.at += seconds
        found = {}
        for one, bodies in self.state.close_due(100, 10**9):
            found[int(one.trace.hex(), 16)] = b"\n".join(bodies).split(b"\n")
            self.state.handed_on(one, {("closed", (("why", str(one.why)),)): 1})
        self.step()
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench(Clock())


def test_a_trace_is_handed_on_with_the_step_that_forgets_its_spans(bench: Bench) -> None:
    one = span(1, 0)
    two = span(1, 1)
    root = span(1, 2, root=True)
    bench.take(record(one), record(two))
    bench.take(record(root))
    assert bench.state.gauges()[0][2] == 1
    bench.clock.at += 2.1
    ((closing, bodies),) = bench.state.close_due(10, 10**9)
    assert (closing.why, b"\n".join(bodies)) == (
        "root",
        b"\n".join([one.line, two.line, root.line]),
    )
    bench.open()  # it died before the step: whoever takes over finds the same
    assert bench.close(2.1) == {1: [one.line, two.line, root.line]}
    bench.open()
    assert bench.state.gauges() == [
        ("ragmeter_otlp_open_traces", (), 0.0),
        ("ragmeter_otlp_open_bytes", (), 0.0),
    ]
    # closed ids are remembered across a takeover: late spans begin nothing
    bench.take(record(span(1, 7)))
    assert counted(bench.state)["late"] == 1
    assert bench.close(60) == {}


def test_spans_of_one_step_are_closed_in_it(bench: Bench) -> None:
    one = span(1, 0, root=True)
    bench.state.apply([record(one)])
    assert bench.close(3) == {1: [one.line]}
    assert not [row for row in bench.rows if row.startswith(b'["o"')]


def test_the_same_span_from_two_senders_counts_once(bench: Bench) -> None:
    bench.take(record(span(1, 0)), record(span(1, 0)))
    bench.open()
    bench.take(record(span(1, 0)))
    assert counted(bench.state) == {"accepted": 1, "duplicate": 2}
    ((_, lines),) = bench.close(31).items()
    assert len(lines) == 1


def test_log_events_count_as_such_and_are_kept_beside_the_spans(bench: Bench) -> None:
    log = LogEvent(f"{1:032x}", f"{1:016x}", SpanEvent("gen_ai.user.message", 5, {"content": "q"}))
    (event,) = serialise_log_events([log], Counter())
    bench.take(record(event), record(span(1, 0, root=True)))
    assert bench.state.counters.get(*parts_total("logs", "accepted")) == 1
    assert bench.state.counters.get(*parts_total("traces", "accepted")) == 1
    assert bench.close(2.1) == {}, "traces are given longer while log events carry content"
    assert len(bench.close(7)[1]) == 2


def test_the_bounds_hold_and_what_is_closed_by_them_is_counted() -> None:
    bench = Bench(Clock(), bounds=AssemblyBounds(open_traces=100, open_bytes=10**9))
    records = [record(span(n, 0)) for n in range(400)]
    out: dict[int, list[bytes]] = {}
    while records:
        if bench.state.apply(records[:50]):
            del records[:50]
        assert bench.state.gauges()[0][2] < 125 + 50
        out |= bench.close(0)
    assert set(out) == set(range(300))
    assert counted(bench.state, "closed") == {"evicted": 300}
    assert bench.state.gauges()[0][2] == 100


def test_an_id_that_is_no_longer_remembered_may_come_again(bench: Bench) -> None:
    bench.take(record(span(1, 0, root=True)))
    assert set(bench.close(3)) == {1}
    bench.clock.at += 4000
    bench.take(record(span(1, 5)))
    bench.open()  # the row that said it was closed is of the earlier one
    bench.take(record(span(1, 6)))
    assert len(bench.close(31)[1]) == 2


def test_ids_that_are_too_many_are_forgotten_in_the_log_as_well() -> None:
    bench = Bench(Clock(), bounds=AssemblyBounds(remembered=3))
    for n in range(10):
        bench.take(record(span(n, 0, root=True)))
        bench.close(3)
    bench.step()
    assert sum(row.startswith(b'["x"') for row in bench.rows) == 3
    bench.open()
    bench.take(record(span(1, 1)), record(span(8, 1)))
    assert counted(bench.state, "otlp_spans") == {"accepted": 11, "late": 1}


def test_what_makes_no_sense_is_refused(bench: Bench) -> None:
    with pytest.raises(UnknownVersion):
        state_of(bench.clock).load({HEAD: b'{"v": 3}'})
    bench.take(record(span(1, 0)))
    for rows in (
        {HEAD: b"[]"},
        {HEAD: bench.rows[HEAD], b'["o","zz",1]': b"[1,true,2,[]]\n"},
        {HEAD: bench.rows[HEAD], b'["o","00",1]': b"no json"},
        {b'["o","00",1]': b"[1,true,2,[]]\n"},
    ):
        with pytest.raises(MalformedState):
            state_of(bench.clock).load(rows)


def test_the_bounds_are_shared_by_the_partitions() -> None:
    assert partition_share(8).open_traces == BOUNDS.open_traces // 8
    assert partition_share(8).open_bytes == BOUNDS.open_bytes // 8
    assert partition_share(10_000).open_bytes == BOUNDS.trace_bytes
    assert partition_share(1) == BOUNDS


def test_the_marks_of_closed_traces_are_those_of_the_version_before(bench: Bench) -> None:
    """Workers are replaced one after another: each version reads what the other writes."""
    bench.take(record(span(1, 0, root=True)))
    bench.close(3)
    (mark,) = [key for key in bench.rows if key.startswith(b'["x"')]
    at, why = json.loads(bench.rows[mark])
    assert (at, CloseReason(why)) == (1_000_003.0, CloseReason.IDLE)
    bench.rows[mark] = b'[1000003.0, "root"]'
    bench.open()
    bench.take(record(span(1, 1)))
    assert counted(bench.state, "otlp_spans") == {"accepted": 1, "late": 1}


def test_the_spans_of_a_trace_that_come_together_are_one_row(bench: Bench) -> None:
    bench.take(record(span(1, 0)), record(span(2, 0)), record(span(1, 1)))
    assert sum(row.startswith(b'["o"') for row in bench.rows) == 2


def test_spans_that_are_too_large_together_are_several_rows() -> None:
    one, two, three = (span(1, n) for n in range(3))
    clock = Clock()
    state = AssemblyState(OTLP, row_bytes=2 * one.part.size, clock=clock, monotonic=clock)
    assert state.apply([record(one, two, three)])
    rows: dict[bytes, bytes] = {}
    flat(state.step(), rows)
    assert sum(row.startswith(b'["o"') for row in rows) == 2
    clock.at += 31
    ((_, bodies),) = state.close_due(10, 10**9)
    assert b"\n".join(bodies) == b"\n".join([one.line, two.line, three.line])


def test_spans_that_are_sent_again_are_known_after_a_restart(bench: Bench) -> None:
    origin = Origin("rag.traces", 0, 1, 0, 4)
    assert bench.state.is_new(origin)
    bench.take(record(span(1, 0)))
    for _ in range(2):
        assert not bench.state.is_new(origin)
        bench.open()
    assert bench.state.is_new(origin._replace(part=1))


def test_spans_that_wait_for_room_are_not_known_before_they_are_taken_in(bench: Bench) -> None:
    """A step in between would lose them if their worker died."""
    bench.bounds = AssemblyBounds(open_traces=100, open_bytes=10**9)
    bench.open()
    bench.take(*[record(span(number, 0)) for number in range(200)])
    origin = Origin("rag.traces", 0, 1, 0, 4)
    assert bench.state.is_new(origin)
    assert not bench.state.apply([record(span(200, 0))])
    bench.step()
    bench.open()
    assert bench.state.is_new(origin), "read again from the committed offset"
