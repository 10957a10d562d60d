from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.buckets import Bucket, SeriesSlots
from ragmeter.windows.saved_buckets import encode_bucket

from tests.tables import each_row
from tests.windows.helpers import SPECS, score, trace

STATES = [ScoreState.SCORED] * 6 + [
    ScoreState.NOT_APPLICABLE,
    ScoreState.SAMPLED_OUT,
    ScoreState.UNSCORED,
    ScoreState.SHED,
]


def some_score(metric: str, rng: random.Random) -> Score:
    state = rng.choice(STATES)
    value = float(rng.random() < 0.5) if SPECS[metric].kind == "ratio" else rng.random()
    found = score(
        metric, value if state is ScoreState.SCORED else None, rng.choice([1.0, 1.0, 0.3]), state
    )
    if rng.random() < 0.3:  # one that a sampling tier has answered for
        found.stratum = rng.choice(["low", "rest"])
        found.cheap = rng.choice([None, rng.random()])
    return found


def some_traces(number: int, rng: random.Random, ragged: bool) -> list[ScoredTrace]:
    found = []
    for i in range(number):
        scores = [some_score(metric, rng) for metric in SPECS]
        if ragged:
            rng.shuffle(scores)
        one = trace(i, i, scores, timings={"total": rng.random()})
        one = one._replace(partial=rng.random() < 0.3, probability=rng.choice([1.0, 0.2]))
        if rng.random() < 0.2:
            pending = (("error", "judge", "low"), ("error", "hhem", "rest"))
            one = one._replace(pending=pending)
        found.append(one)
    return found


def encoded(bucket: Bucket, slots: SeriesSlots) -> bytes:
    return encode_bucket(bucket, slots)


@pytest.mark.parametrize("ragged", [False, True])
def test_columns_and_rows_give_the_same_bytes(ragged: bool) -> None:
    rng = random.Random(2)
    traces = some_traces(60, rng, ragged)
    slots = SeriesSlots(SPECS)
    whole = build_bucket(traces, slots)
    parts = Bucket()
    for one in rng.sample(traces, len(traces)):
        parts.add(build_bucket([one], slots), with_worst=True)
    assert encoded(whole, slots) == encoded(parts, slots)


@pytest.mark.parametrize("state", list(ScoreState))
def test_a_score_that_traces_share_counts_as_one_of_each(state: ScoreState) -> None:
    rng = random.Random(str(state))
    for _ in range(100):
        shared = [
            replace(
                some_score(metric, rng),
                state=state,
                value=rng.choice([None, math.nan, 0.0, 0.7, 1.0]),
                reason=rng.choice([None, "no_text", "judge_error", "language"]),
                scorer=rng.choice(["builtin", "judge@v2"]),
                probability=rng.choice([1.0, 0.3, 0.0]),
            )
            for metric in SPECS
        ]
        traces = [one._replace(results=shared) for one in some_traces(12, rng, ragged=False)]
        each = [one._replace(results=[replace(score) for score in shared]) for one in traces]
        slots = SeriesSlots(SPECS)
        assert encoded(build_bucket(traces, slots), slots) == encoded(
            build_bucket(each, slots), slots
        )


@each_row("copies", [1, 20])
@each_row(
    ("value", "probability"),
    [(None, 1.0), (math.nan, 1.0), (-math.inf, 1.0), (1e300, 1.0), (0.5, 0.0), (0.5, math.nan)],
)
def test_a_score_that_cannot_be_averaged_is_unscored(
    value: float | None, probability: float, copies: int
) -> None:
    slots = SeriesSlots(SPECS)
    bad = trace(0, 0, [score("grounding", value, probability)])
    good = [trace(i, 0, {"grounding": 0.5}) for i in range(copies)]
    cell = build_bucket([bad, *good], slots).cell(0)
    assert cell is not None
    assert (cell.scored, cell.unscored) == (copies, 1)


def test_timings_that_are_no_durations_are_left_out() -> None:
    slots = SeriesSlots(SPECS)
    timings = {"total": 0.0, "a": math.nan, "b": -1.0, "c": math.inf}
    bucket = build_bucket([trace(0, 0, timings=timings)], slots)
    assert sorted(bucket.sketches) == ["c", "total"]


def test_a_timing_is_weighted_by_the_upstream_probability() -> None:
    one = trace(0, 0, timings={"total": 1.0})._replace(probability=0.25)
    sketch = build_bucket([one], SeriesSlots(SPECS)).sketches["total"]
    assert [count for _, count in sketch.items()] == [4 << 24]


def stratified(metric: str, state: ScoreState, probability: float, cheap: float | None) -> Score:
    found = score(metric, 1.0 if state is ScoreState.SCORED else None, probability, state)
    found.stratum = "low"
    found.cheap = cheap
    return found


@pytest.mark.parametrize("copies", [1, 5])  # by rows, and by columns
def test_a_stratum_counts_all_its_traces_and_weighs_what_was_drawn(copies: int) -> None:
    slots = SeriesSlots(SPECS)
    out = trace(0, 0, [stratified("error", ScoreState.SAMPLED_OUT, 1.0, 0.5)])
    out = out._replace(probability=0.25)
    done = trace(1, 0, [stratified("error", ScoreState.SCORED, 0.5, 0.25)])
    done = done._replace(probability=0.5, partial=True)
    pending = (("error", "builtin", "low"),)
    waiting = trace(1, 0)._replace(probability=0.5, pending=pending)
    lost = trace(2, 0, [stratified("error", ScoreState.UNSCORED, 0.5, 0.75)])
    bucket = build_bucket([out, done, waiting, lost] * copies, slots)
    cell = bucket.cell(0)
    assert cell is not None
    assert cell.states() == {
        "scored": copies,
        "not_applicable": 0,
        "sampled_out": copies,
        "unscored": copies,
        "shed": 0,
    }
    sums = cell.sums()["low"]
    assert sums.size == (4 + 2 + 1) * copies * WEIGHT_ONE
    assert sums.w == sums.no_value == 2 * copies * WEIGHT_ONE
    assert cell.unscored_share() == 0.5


def test_a_version_counts_its_traces_under_the_scorer() -> None:
    slots = SeriesSlots(SPECS)
    one = stratified("error", ScoreState.SCORED, 0.5, 0.5)
    one.scorer = "judge@1"
    bucket = build_bucket([trace(0, 0, [one])], slots)
    place = slots.find(("error", "judge"))
    assert place is not None
    whole = bucket.cell(place)
    assert whole is not None
    assert (whole.scored, whole.sums()["low"][0]) == (0, WEIGHT_ONE)


def test_a_stratum_is_one_whatever_the_cheap_scores_of_its_traces() -> None:
    slots = SeriesSlots(SPECS)
    cheaps = [None, math.nan, 0.1, 0.5]
    traces = [
        trace(i, 0, [stratified("error", ScoreState.SCORED, 1.0, cheap)])
        for i, cheap in enumerate(cheaps)
    ]
    cell = build_bucket(traces, slots).cell(0)
    assert cell is not None
    assert cell.strata is not None
    assert {name: sums.n for name, sums in cell.strata.items()} == {"low": 4}
