"""Columns of valued traces are the traces themselves, whatever came, changed and went."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from ragmeter.core.score import Score, ScoreState
from ragmeter.parts.questions.samples import (
    BY_CLASS,
    KEPT_SECONDS,
    SampleName,
    SampleRange,
    Valuation,
    ValuedTrace,
    ValuedTraces,
)
from ragmeter.windows.sums import NO_SUMS, StratumSums, stratum_key

from tests.parts.questions.samples import HOUR, START

PAIRS = [("grounded", "model"), ("grounded", "judge"), (BY_CLASS, "judge"), (BY_CLASS, "labels")]


def some_valuation(rng: random.Random) -> Valuation:
    applies = rng.random() < 0.9
    return Valuation(
        value=rng.random() if applies and rng.random() < 0.8 else None,
        applies=applies,
        probability=rng.choice([1.0, 0.5, 0.03]),
        stratum=rng.choice(["", "low:1", "rest:5"]),
        cheap=rng.choice([None, 0.0, 1.0]),
        version=rng.choice(["", "a", "b"]),
    )


def strata_of(samples: list[ValuedTrace], question: str, source: str) -> Mapping[str, StratumSums]:
    """Sum the valuations one by one."""
    found: dict[str, StratumSums] = {}
    for sample in samples:
        one = sample.values.get(question, {}).get(source)
        if one is None:
            continue
        state = ScoreState.SCORED if one.value is not None else ScoreState.UNSCORED
        if not one.applies:
            state = ScoreState.NOT_APPLICABLE
        name = one.stratum
        if name and question == BY_CLASS:
            name = stratum_key(name, one.cheap)
        score = Score("", source, state, one.value, probability=one.probability)
        found[name] = found.get(name, NO_SUMS).plus(StratumSums.of_result(score, state))
    return found


def check(traces: ValuedTraces, service: str, start: float, end: float) -> int:
    """Compare the columns of a stretch of time with its samples; return how many values it has."""
    samples = list(traces.between(service, start, end))
    count = 0
    for columns in (traces.range(service, start, end), SampleRange.of(samples)):
        for question, source in PAIRS:
            valued = columns.valued(question, source)
            assert valued.strata() == strata_of(samples, question, source)
            having = [
                (sample.at, one)
                for sample in samples
                if (one := sample.values.get(question, {}).get(source)) and one.value is not None
            ]
            rows = [(sample.at, one) for sample, one in valued.rows()]
            assert sorted(rows, key=repr) == sorted(having, key=repr)
            assert [at for at, _ in rows] == sorted(at for at, _ in rows)
            assert valued.count == len(having)
            versions = [one.version for _, one in having if one.version]
            assert valued.by_version() == {name: versions.count(name) for name in set(versions)}
            first = valued.of_version("a")
            assert first.count == sum(one.version in ("", "a") for _, one in having)
            count += valued.count
    return count


@pytest.mark.parametrize("limit", [10_000, 60])
def test_columns_follow_what_is_added_replaced_dropped_and_restored(limit: int) -> None:
    rng = random.Random(limit)
    traces = ValuedTraces(limit)
    rows: dict[SampleName, ValuedTrace] = {}
    now = START
    seen = 0
    for step in range(300):
        now += rng.uniform(0, 2 * KEPT_SECONDS / 300)
        # some are of a moment that another trace has, and some have been valued before
        name = SampleName(rng.choice(["bot", "shop"]), f"t{rng.randrange(150)}")
        values: dict[str, dict[str, Valuation]] = {}
        for question, source in rng.sample(PAIRS, 2):
            values.setdefault(question, {})[source] = some_valuation(rng)
        at = (now - rng.uniform(0, 3 * HOUR)) // 1800 * 1800
        traces.add(name, at=at, segments=(), values=values)
        if rng.random() < 0.1:
            traces.expire(now)
        if rng.random() < 0.02:
            traces.forget("shop")
        for key, sample in traces.changes().items():
            rows.pop(key, None)
            if sample is not None:
                rows[key] = sample
        if step % 10 == 0:
            again = ValuedTraces(limit)
            again.restore(rows, {})
            for one in (traces, again):
                for service in ("bot", "shop"):
                    start, end = now - rng.uniform(0, KEPT_SECONDS), now - HOUR
                    seen += check(one, service, start // 1800 * 1800, end // 1800 * 1800)
                    seen += check(one, service, 0.0, now + 1)
                    seen += check(one, service, 0.0, now - HOUR)  # less from the same position
    assert seen > 5_000
