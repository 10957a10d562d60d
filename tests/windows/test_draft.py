from __future__ import annotations

import math
import random

import pytest

from agent.trace import Score, ScoredTrace, State
from agent.windows.bucket import Bucket, Slots
from agent.windows.draft import make_bucket
from agent.windows.persist import encode_bucket
from tests.windows.helpers import SPECS, score, trace

STATES = [State.SCORED] * 6 + [
    State.NOT_APPLICABLE,
    State.SAMPLED_OUT,
    State.UNSCORED,
    State.SHED,
]


def some_score(metric: str, rng: random.Random) -> Score:
    state = rng.choice(STATES)
    value = float(rng.random() < 0.5) if SPECS[metric].kind == "ratio" else rng.random()
    return score(
        metric, value if state is State.SCORED else None, rng.choice([1.0, 1.0, 0.3]), state
    )


def some_traces(number: int, rng: random.Random, ragged: bool) -> list[ScoredTrace]:
    found = []
    for i in range(number):
        scores = [some_score(metric, rng) for metric in SPECS]
        if ragged:
            rng.shuffle(scores)
        found.append(trace(i, i, scores, timings={"total": rng.random()}))
    return found


def encoded(bucket: Bucket, slots: Slots) -> bytes:
    return encode_bucket(bucket, slots)


@pytest.mark.parametrize("ragged", [False, True])
def test_columns_and_rows_give_the_same_bytes(ragged: bool) -> None:
    rng = random.Random(2)
    traces = some_traces(60, rng, ragged)
    slots = Slots(SPECS)
    whole = make_bucket(traces, slots)
    parts = Bucket()
    for one in rng.sample(traces, len(traces)):
        parts.add(make_bucket([one], slots), with_worst=True)
    assert encoded(whole, slots) == encoded(parts, slots)


@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize(
    ("value", "probability"),
    [(None, 1.0), (math.nan, 1.0), (-math.inf, 1.0), (1e300, 1.0), (0.5, 0.0), (0.5, math.nan)],
)
def test_a_score_that_cannot_be_averaged_is_unscored(
    value: float | None, probability: float, copies: int
) -> None:
    slots = Slots(SPECS)
    bad = trace(0, 0, [score("grounding", value, probability)])
    good = [trace(i, 0, {"grounding": 0.5}) for i in range(copies)]
    cell = make_bucket([bad, *good], slots).cell(0)
    assert cell is not None
    assert (cell.scored, cell.unscored) == (copies, 1)


def test_timings_that_are_no_durations_are_left_out() -> None:
    slots = Slots(SPECS)
    timings = {"total": 0.0, "a": math.nan, "b": -1.0, "c": math.inf}
    bucket = make_bucket([trace(0, 0, timings=timings)], slots)
    assert sorted(bucket.sketches) == ["c", "total"]


def test_a_timing_is_weighted_by_the_upstream_probability() -> None:
    one = trace(0, 0, timings={"total": 1.0})
    one.probability = 0.25
    sketch = make_bucket([one], Slots(SPECS)).sketches["total"]
    assert [count for _, count in sketch.items()] == [4 << 24]
