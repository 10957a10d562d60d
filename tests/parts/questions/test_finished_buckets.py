"""Sums that are kept of finished buckets are those that a new reader makes."""

from __future__ import annotations

import random

import pytest
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.questions.levels import worth_of
from ragmeter.parts.questions.movements import TotalTimes
from ragmeter.parts.questions.traffic import (
    DAY,
    HOUR,
    BucketRange,
    QuestionMoments,
    RequestBuckets,
    RequestColumns,
    RequestSums,
    last_buckets,
)
from ragmeter.windows.windows import Windows

START = 1_790_000_000.0
EMPTY = QuestionMoments(0, 0.0, 0.0, 0.0, 0.0)


def request(at: float, rng: random.Random) -> RequestColumns:
    return RequestColumns(
        at=[at],
        weights=[rng.choice([1.0, 10.0])],
        values={"works": [float(rng.random() < 0.9)], "fast": [rng.gauss(0.0, 0.5)]},
        clusters=[rng.randrange(8)],
        tenants=[rng.randrange(2)],
        strata=[("judge:a",)],
    )


def test_what_only_hours_without_slots_have_is_worth_its_requests() -> None:
    sums, later = RequestSums(), RequestSums()
    sums.add_requests(request(START, random.Random(5)), whole=True)
    sums.forget_slots()
    answered = RequestColumns(
        at=[START + DAY],
        weights=[1.0],
        values={"answered": [1.0]},
        clusters=[3],
        tenants=[1],
        strata=[()],
    )
    later.add_requests(answered, whole=True)
    sums.add(later)
    assert sums.slots is not None
    assert worth_of(sums, "works", tenants=True) == 1.0


def summed_anew(traffic: RequestBuckets, buckets: BucketRange) -> RequestSums:
    fresh = RequestBuckets(whole=True)
    for key in traffic.all_keys():
        fresh.restore(key, traffic._buckets[key].dump())
    return fresh.sums(buckets)


@pytest.mark.parametrize("late", [0.0, 900.0, 7200.0])
def test_sums_are_those_of_buckets_read_for_the_first_time(late: float) -> None:
    rng = random.Random(3)
    traffic = RequestBuckets(whole=True)
    now = START
    for _ in range(120):
        now += rng.uniform(0, 1200)
        traffic.add(request(now - rng.uniform(0, late), rng))
        if rng.random() < 0.1:
            traffic.expire(now)
        for seconds in (HOUR, 6 * HOUR, DAY):
            buckets = last_buckets(seconds, now)
            found = traffic.sums(buckets)
            if rng.random() < 0.3:  # a new reader takes all buckets
                assert found.dump() == summed_anew(traffic, buckets).dump()


@pytest.mark.parametrize("late", [0.0, 900.0, 7200.0])
def test_times_are_those_of_windows_read_for_the_first_time(late: float) -> None:
    rng = random.Random(4)
    traffic = RequestBuckets(whole=True)
    windows = Windows(["90m"])
    now = START
    for number in range(600):
        now += rng.uniform(0, 300)
        at = now - rng.uniform(0, late)
        windows.advance(now)
        if rng.random() < 0.3:  # else the time of another service
            timings = {"total": rng.lognormvariate(0, 0.5)}
            trace = ScoredTrace(f"t{number}", "bot", at, "ok", (), timings=timings)
            windows.add(trace, "bot")
            traffic.add(request(at, rng))
        for seconds in (HOUR, 6 * HOUR, DAY):
            buckets = last_buckets(seconds, now)
            found = TotalTimes(windows, traffic, "bot").histogram(buckets)
            anew = TotalTimes(windows, RequestBuckets(whole=True), "bot").histogram(buckets)
            assert (found and found.counts) == (anew and anew.counts)


def test_what_readers_made_of_finished_buckets_is_kept_until_one_of_them_changes() -> None:
    rng = random.Random(6)
    traffic = RequestBuckets(whole=True)
    for number in range(200):
        traffic.add(request(START + 300 * number, rng))
    past = BucketRange(START // HOUR * HOUR, START // HOUR * HOUR + 6 * HOUR, HOUR)
    first = traffic.sums(past)
    worth = worth_of(first, "works", tenants=True)
    traffic.add(request(START + 300 * 199 + 1, rng))
    assert traffic.sums(past) is first
    assert first.known["works", True] == worth
    traffic.add(request(START + 300, rng))
    again = traffic.sums(past)
    assert again.dump() == summed_anew(traffic, past).dump() != first.dump()
    assert worth_of(again, "works", tenants=True) != worth


def test_moments_follow_every_change_of_the_sums() -> None:
    rng = random.Random(7)
    sums, other = RequestSums(), RequestSums()
    other.add_requests(request(START, rng), whole=True)
    assert sums.of("works") is None
    sums.add_requests(request(START, rng), whole=True)
    assert (sums.of("works") or EMPTY).n == 1
    sums.add_requests(request(START, rng), whole=False)
    assert (sums.of("works") or EMPTY).n == 2
    sums.add(other)
    assert (sums.of("works") or EMPTY).n == 3
    assert sums.of("grounded") is None
    assert RequestSums.load(sums.dump()).of("works") == sums.of("works") == sums.copy().of("works")
