"""Owners of open traces that die between any two steps: each trace comes out once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.ingest.stored_spans import StoredPart
from ragmeter.kafka.state.assembly import AssemblyState

from tests.kafka.state.open_spans import Clock, counted, record, span, state_of
from tests.kafka.state.partition import flat


@dataclass
class World:
    """A topic of spans, and owners that die anywhere."""

    rng: random.Random
    clock: Clock = field(default_factory=Clock)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    committed: int = 0
    sent: dict[int, list[bytes]] = field(default_factory=dict)

    def crash(self) -> None:
        if self.rng.random() < 0.05:
            raise Crash

    def run(self, records: Sequence[Sequence[StoredPart]]) -> AssemblyState:
        """One owner, until all is handed on or it dies."""
        rng = self.rng
        state = state_of(self.clock)
        state.load(dict(self.rows))
        at = self.committed
        idle = 0
        sent: dict[int, list[bytes]] = {}
        while idle < 3:
            batch = records[at : at + rng.randrange(1, 5)]
            state.apply(batch)
            at += len(batch)
            self.clock.at += rng.choice([0.1, 1, 3]) if batch else 40
            closing = state.close_due(3, 10**9)
            self.crash()
            for one, bodies in closing:
                number = int(one.trace.hex(), 16)
                assert number not in self.sent
                sent[number] = b"\n".join(bodies).split(b"\n")
                state.handed_on(one, {("closed", ()): 1})
            idle = 0 if batch or state.changed else idle + 1
            if state.changed:
                step = state.step()
                self.crash()
                flat(step, self.rows)
                self.sent |= sent
                self.committed = at
                sent = {}
        return state


class Crash(Exception):
    pass


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_whatever_dies_each_trace_comes_out_once(seed: int) -> None:
    rng = random.Random(seed)
    spans = [span(n, k, root=k == n % 3) for n in range(12) for k in range(rng.randrange(1, 5))]
    # a trace is spread over some time, its root anywhere: some spans come when it is closed
    spans.sort(key=lambda one: int(one.part.trace.hex(), 16) + rng.uniform(0, 4))
    records = [record(one) for one in spans]
    world = World(rng)
    while True:
        try:
            state = world.run(records)
        except Crash:
            world.clock.at += rng.choice([0, 1, 10])
            continue
        break
    assert set(world.sent) == set(range(12))
    lines = [line for trace in world.sent.values() for line in trace]
    found = counted(state, "otlp_spans")
    assert len(lines) == len(set(lines)) == found["accepted"]
    assert found["accepted"] + found.get("late", 0) == len(records)
    assert "duplicate" not in found
    assert state.counters.get("closed") == 12
