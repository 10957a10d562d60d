"""Owners of open traces that die between any two writes: each trace comes out, always the same."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.kafka.span_records import SpanRecord
from ragmeter.kafka.state.assembly import AssemblyState, span_body
from ragmeter.kafka.state.ledger import Ledger, LogRecord
from tests.kafka.state.open_spans import Clock, K, counted, record, span, state_of


@dataclass
class World:
    """A topic of spans with repetitions, and owners that die anywhere."""

    rng: random.Random
    clock: Clock = field(default_factory=Clock)
    log: list[LogRecord] = field(default_factory=list)
    committed: int = 0
    generation: int = 0
    sent: dict[int, list[tuple[bytes, ...]]] = field(default_factory=lambda: defaultdict(list))

    def crash(self) -> None:
        if self.rng.random() < 0.03:
            raise Crash

    def run(self, records: Sequence[SpanRecord]) -> AssemblyState:
        """One owner, until all is handed on or it dies."""
        rng = self.rng
        self.generation += 1
        ledger, found = Ledger.recover(0, self.generation, self.log)
        state = state_of(self.clock)
        state.load(found.rows, found.head)
        at, idle = self.committed, 0
        while idle < 3:
            values = dict(self.log)
            for one in state.ready():
                lines = []
                for row in state.rows(one.trace):
                    value = values[ledger.key(row)]
                    assert value is not None
                    lines += span_body(Ledger.content(value)).split(b"\n")
                self.sent[int(one.trace.hex(), 16)].append(tuple(lines))
                self.crash()
                state.handed_on(one.trace, {("closed", ()): 1})
            batch = records[at : at + rng.randrange(1, 5)]
            state.apply(batch)
            at += len(batch)
            self.clock.at += rng.choice([0.1, 1, 3]) if batch else 40
            state.close_due(3, 10**9)
            idle = 0 if batch or state.changed or state.ready() else idle + 1
            if state.changed:
                step = state.step()
                writes = ledger.begin(step.rows)
                rng.shuffle(writes)
                for write in writes:
                    self.crash()
                    self.log.append(write)
                self.crash()
                self.log.append(ledger.marker(step.head))
                self.crash()
                self.committed = at  # the fence
                ledger.done()
            self.crash()
            self.committed = at
        return state


class Crash(Exception):
    pass


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_whatever_dies_each_trace_comes_out_and_always_the_same(seed: int) -> None:
    rng = random.Random(seed)
    spans = [span(n, k, root=k == n % 3) for n in range(12) for k in range(rng.randrange(1, 5))]
    # a trace is spread over some time, its root anywhere: some spans come when it is closed
    spans.sort(key=lambda one: int(one.part.trace.hex(), 16) + rng.uniform(0, 4))
    records = [record(offset, one) for offset, one in enumerate(spans)]
    log = list[SpanRecord]()
    for number, one in enumerate(records):
        log.append(one)
        if (
            rng.random() < 0.1
        ):  # a crash of the score processor: it goes back to what it had committed
            log += records[max(0, number - rng.randrange(K)) : number + 1]
    world = World(rng)
    while True:
        try:
            state = world.run(log)
        except Crash:
            world.clock.at += rng.choice([0, 1, 10])
            continue
        break
    assert set(world.sent) == set(range(12))
    assert all(len(set(outcomes)) == 1 for outcomes in world.sent.values()), "the same each time"
    lines = [line for outcomes in world.sent.values() for line in outcomes[0]]
    found = counted(state, "otlp_spans")
    assert len(lines) == len(set(lines)) == found["accepted"]
    assert found["accepted"] + found.get("late", 0) == len(records)
    assert "duplicate" not in found, "repetitions are known by their source"
    assert state.counters.get("closed") == 12
