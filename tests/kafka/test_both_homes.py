"""What both homes count of the same traces, whatever order the partitions bring them in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.embedded.test_agent import feed, running
from tests.kafka.state.partition import apply, record, state_of
from tests.traces import START, good

SUM = "rag_request_duration_seconds_sum"


def test_sums_of_durations_are_the_same_to_the_last_digit(tmp_path: Path) -> None:
    rng = random.Random(3)
    timings = [{"total": rng.lognormvariate(0, 1)} for _ in range(400)]
    traces: list[dict[str, Any]] = [
        {"timings": one, "timestamp": START + n} for n, one in enumerate(timings)
    ]
    with running(tmp_path) as started:
        feed(started, [good(n, **fields) for n, fields in enumerate(traces)])
        expected = {key: by for key, by in started.counters.items() if key[0] == SUM}
    state = state_of()
    order = rng.sample(range(len(traces)), len(traces))
    apply(state, [record(n, **traces[n]) for n in order])
    assert {key: by for key, by in state.aggregator.counters.items() if key[0] == SUM} == expected
    assert len(expected) == 1
