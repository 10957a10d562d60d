from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.assembler import (
    Assembler,
    AssemblyBounds,
    AssemblyPlan,
    CloseReason,
    ClosingTrace,
    PartFate,
    RestoredTrace,
    TracePart,
)

ANY = 10**9
LIMITS = OtlpSettings()


def part(
    trace: str, span: int, *, root: bool = False, size: int = 100, log: bool = False
) -> TracePart:
    return TracePart(trace.encode(), span.to_bytes(2), size, root, log)


def take(assembler: Assembler, now: float, *parts: TracePart) -> AssemblyPlan:
    plan = assembler.plan(parts, now)
    assembler.apply(plan)
    return plan


def close(assembler: Assembler, now: float) -> list[tuple[str, CloseReason]]:
    """Close all that is due, as the caller does."""
    out: list[tuple[str, CloseReason]] = []
    while closing := assembler.due(now, 100, ANY):
        for one in closing:
            assembler.closed(one.trace, now)
            out.append((one.trace.decode(), one.why))
    return out


def test_a_root_and_quiet_close_a_trace() -> None:
    assembler = Assembler(LIMITS)
    take(assembler, 0.0, part("a", 1))
    take(assembler, 1.0, part("a", 0, root=True))
    assert close(assembler, 2.9) == []
    take(assembler, 2.9, part("a", 2))  # came after its root
    assert close(assembler, 4.8) == []
    assert close(assembler, 4.9) == [("a", CloseReason.ROOT)]
    assert len(assembler) == assembler.size == 0


def test_a_trace_without_its_root_is_closed_when_idle() -> None:
    assembler = Assembler(LIMITS)
    take(assembler, 0.0, part("a", 1))
    take(assembler, 29.0, part("a", 2))
    assert close(assembler, 58.9) == []
    assert close(assembler, 59.0) == [("a", CloseReason.IDLE)]


def test_a_trace_that_is_never_quiet_is_closed_by_its_age() -> None:
    assembler = Assembler(LIMITS)
    for second in range(300):
        take(assembler, float(second), part("a", second, root=second == 0))
        assert close(assembler, float(second)) == []
    assert close(assembler, 300.0) == [("a", CloseReason.AGE)]


def test_log_events_with_content_lengthen_the_quiet_time() -> None:
    assembler = Assembler(LIMITS)
    take(assembler, 0.0, part("other", 1, log=True))
    take(assembler, 0.0, part("a", 0, root=True))
    assert close(assembler, 5.9) == []
    take(assembler, 5.9, part("a", 9, log=True))
    assert close(assembler, 11.8) == []
    assert close(assembler, 12.0) == [("a", CloseReason.ROOT)]
    close(assembler, 3605.0)
    take(assembler, 3700.0, part("b", 0, root=True))
    assert close(assembler, 3702.0) == [("b", CloseReason.ROOT)]


def test_the_same_span_counts_once() -> None:
    assembler = Assembler(LIMITS)
    plan = take(assembler, 0.0, part("a", 1), part("a", 1), part("b", 1))
    assert plan.fates == [PartFate.ACCEPTED, PartFate.DUPLICATE, PartFate.ACCEPTED]
    assert plan.accepted == {b"a": [0], b"b": [2]}
    assert take(assembler, 1.0, part("a", 1)).fates == [PartFate.DUPLICATE]
    assert assembler.size == 200


def test_a_plan_that_was_not_applied_has_changed_nothing() -> None:
    assembler = Assembler(LIMITS)
    for _ in range(2):
        assert assembler.plan([part("a", 1)], 0.0).fates == [PartFate.ACCEPTED]
    assert len(assembler) == assembler.size == 0
    assert close(assembler, 1000.0) == []


def test_late_spans_begin_no_second_trace() -> None:
    assembler = Assembler(LIMITS)
    take(assembler, 0.0, part("a", 0, root=True))
    (due,) = assembler.due(2.0, 9, ANY)
    # from here on, also while its spans are being read
    assert take(assembler, 2.0, part("a", 5)).fates == [PartFate.LATE]
    assembler.closed(due.trace, 2.5)
    assert take(assembler, 3000.0, part("a", 6)).fates == [PartFate.LATE]
    # known for an hour after the last that came of it
    assert take(assembler, 6500.0, part("a", 6)).fates == [PartFate.LATE]
    assert take(assembler, 10200.0, part("a", 6)).fates == [PartFate.ACCEPTED]


def test_what_is_remembered_is_bounded_and_said_when_it_ends() -> None:
    assembler = Assembler(OtlpSettings(), AssemblyBounds(remembered=2))
    for number, name in enumerate("abc"):
        take(assembler, float(number), part(name, 0, root=True))
    gone = [
        assembler.closed(one.trace, 10.0 + number)
        for number, one in enumerate(assembler.due(10.0, 9, ANY))
    ]
    assert gone == [[], [], [b"a"]]
    take(assembler, 4000.0, part("d", 0, root=True))
    (due,) = assembler.due(4100.0, 9, ANY)
    assert assembler.closed(due.trace, 4100.0) == [b"b", b"c"]  # an hour is over


def test_caps_close_a_trace_and_take_no_more() -> None:
    assembler = Assembler(OtlpSettings(), AssemblyBounds(trace_spans=3))
    plan = take(assembler, 0.0, *(part("a", n) for n in range(5)))
    assert plan.fates == [*[PartFate.ACCEPTED] * 3, PartFate.OVER_LIMIT, PartFate.OVER_LIMIT]
    assert take(assembler, 0.0, part("a", 9)).fates == [PartFate.OVER_LIMIT]
    assert close(assembler, 0.0) == [("a", CloseReason.SPANS)]
    assembler = Assembler(OtlpSettings(), AssemblyBounds(trace_bytes=1024))
    plan = take(assembler, 0.0, part("a", 1, size=5000), part("a", 2))
    assert plan.fates == [PartFate.ACCEPTED, PartFate.OVER_LIMIT]  # one large span is a trace too
    assert close(assembler, 0.0) == [("a", CloseReason.BYTES)]


def test_the_oldest_are_closed_when_too_many_are_open() -> None:
    assembler = Assembler(OtlpSettings(), AssemblyBounds(open_traces=2))
    for number, name in enumerate("abcd"):
        take(assembler, float(number), part(name, 1))
    assert assembler.full
    assert close(assembler, 4.0) == [("a", CloseReason.EVICTED), ("b", CloseReason.EVICTED)]
    assert not assembler.full
    assembler = Assembler(OtlpSettings(), AssemblyBounds(open_bytes=1024))
    take(assembler, 0.0, part("a", 1, size=600))
    take(assembler, 1.0, part("b", 1, size=500))
    assert not assembler.full
    take(assembler, 1.0, part("c", 1, size=500))
    assert assembler.full
    assert close(assembler, 1.0) == [("a", CloseReason.EVICTED)]


def test_what_is_being_closed_counts_until_it_is() -> None:
    assembler = Assembler(OtlpSettings(), AssemblyBounds(open_traces=4))
    take(assembler, 0.0, *(part(name, 0, root=True) for name in "abcde"))
    assert len(assembler.due(5.0, 3, ANY)) == 3
    assert len(assembler) == 5
    assert assembler.full
    assert assembler.due(5.0, 9, 150) == [
        ClosingTrace(b"d", CloseReason.ROOT, 100)
    ]  # one, whatever its size
    assert assembler.due(5.0, 9, ANY) == [ClosingTrace(b"e", CloseReason.ROOT, 100)]
    assert assembler.due(5.0, 9, ANY) == []


def test_a_restart_begins_quiet_time_anew_and_ages_on() -> None:
    def restored(first: float, now: float) -> Assembler:
        assembler = Assembler(LIMITS)
        assembler.restore(
            [RestoredTrace(b"a", first, [b"\0\1", b"\0\2"], 200, False)], [(b"c", 10.0)], now
        )
        return assembler

    assembler = restored(0.0, 100.0)
    assert (len(assembler), assembler.size) == (1, 200)
    plan = take(assembler, 101.0, part("a", 2), part("a", 0, root=True), part("c", 1))
    assert plan.fates == [PartFate.DUPLICATE, PartFate.ACCEPTED, PartFate.LATE]
    assert close(assembler, 102.9) == []
    assert close(assembler, 103.0) == [("a", CloseReason.ROOT)]
    assert close(restored(0.0, 100.0), 129.9) == []
    assert close(restored(0.0, 100.0), 130.0) == [("a", CloseReason.IDLE)]
    # down for longer than the longest age, or a clock that was set back: an idle time is left
    assert close(restored(0.0, 9000.0), 9029.0) == []
    assert close(restored(0.0, 9000.0), 9030.0) == [("a", CloseReason.IDLE)]
    assert close(restored(5000.0, 100.0), 130.0) == [("a", CloseReason.IDLE)]


def test_closed_ids_of_a_clock_set_back_do_not_stay_for_ever() -> None:
    assembler = Assembler(LIMITS)
    assembler.restore([], [(b"a", 1e9)], 0.0)
    assert assembler.plan([part("a", 1)], 3500.0).fates == [PartFate.LATE]
    assert assembler.plan([part("a", 1)], 3601.0).fates == [PartFate.ACCEPTED]


# Any order, repetition and splitting -------------------------------------------------------------

TRACES = {"a": 5, "b": 1, "c": 9}
SPANS = [(trace, number) for trace, count in TRACES.items() for number in range(count)]


@settings(max_examples=50)
@given(st.data())
def test_any_order_repetition_and_splitting_gives_each_trace_once(data: st.DataObject) -> None:
    """At most 25 requests within 25 s, and restarts between them: nothing is late."""
    order = data.draw(st.permutations(SPANS))
    again = data.draw(st.lists(st.sampled_from(SPANS), max_size=10))
    sent = [*order, *again]
    assembler = Assembler(OtlpSettings(grace_seconds=30))
    now = 0.0
    got: dict[str, set[int]] = {}
    fates: Counter[PartFate] = Counter()
    closed: list[str] = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        request, sent = sent[:size], sent[size:]
        plan = take(assembler, now, *(part(t, n, root=n == 0) for t, n in request))
        fates.update(plan.fates)
        for indexes in plan.accepted.values():
            for index in indexes:
                trace, number = request[index]
                assert number not in got.setdefault(trace, set())
                got[trace].add(number)
        if data.draw(st.booleans()):  # killed and started again
            anew = Assembler(OtlpSettings(grace_seconds=30))
            rows = [
                RestoredTrace(
                    t.encode(),
                    0.0,
                    [n.to_bytes(2) for n in numbers],
                    100 * len(numbers),
                    0 in numbers,
                )
                for t, numbers in got.items()
                if t not in closed
            ]
            anew.restore(rows, [(t.encode(), now) for t in closed], now)
            assembler = anew
        now += data.draw(st.floats(0, 1))
        closed += [name for name, _ in close(assembler, now)]
    closed += [name for name, _ in close(assembler, now + 31)]
    assert sorted(closed) == sorted(TRACES)
    assert got == {trace: set(range(count)) for trace, count in TRACES.items()}
    assert (
        fates
        == Counter({PartFate.ACCEPTED: len(SPANS), PartFate.DUPLICATE: len(again)}) - Counter()
    )
    assert len(assembler) == assembler.size == 0


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"), st.integers(0, 4), st.floats(0, 40), st.integers(1, 400)
        ),
        max_size=60,
    )
)
def test_whatever_comes_no_trace_is_closed_twice_and_the_bounds_hold(
    events: list[tuple[str, int, float, int]],
) -> None:
    assembler = Assembler(
        OtlpSettings(),
        AssemblyBounds(open_traces=3, trace_spans=4, trace_bytes=1024, open_bytes=1024),
    )
    now = 0.0
    closed: list[str] = []
    held = 0
    for trace, number, pause, size in events:
        plan = take(assembler, now, part(trace, number, root=number == 0, size=size))
        assert (trace in closed) == (plan.fates == [PartFate.LATE])
        held += size * (plan.fates == [PartFate.ACCEPTED])
        now += pause
        closed += [name for name, _ in close(assembler, now)]
        assert len(assembler) <= 3
        assert assembler.size <= 1024
    closed += [name for name, _ in close(assembler, now + 300)]
    assert len(closed) == len(set(closed)) == len({trace for trace, *_ in events})
    assert assembler.size == 0
