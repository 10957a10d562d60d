from __future__ import annotations

from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.buckets import Bucket, BucketRing, SeriesSlots, WindowSpan

from tests.windows.helpers import SPECS, trace

OWNER = ("bot", "")


def ring(*buckets: int) -> BucketRing:
    return BucketRing(10, [WindowSpan(f"{n}", 10 * n, n) for n in buckets], worst=True)


def delta(slots: SeriesSlots, number: int = 0) -> Bucket:
    return build_bucket([trace(number, 0, {"error": 1.0}, timings={"total": 1.0})], slots)


def seen(r: BucketRing) -> list[int]:
    return [span.totals[OWNER].trace_count if OWNER in span.totals else 0 for span in r.spans]


def test_each_span_takes_what_it_reaches() -> None:
    r = ring(3, 5)
    slots = SeriesSlots(SPECS)
    r.advance(10)
    for index in range(5, 11):
        r.fold(index, OWNER, delta(slots))
    assert seen(r) == [3, 5]
    assert sorted(r.rows) == [6, 7, 8, 9, 10]


def test_totals_are_the_sum_of_their_buckets_after_expiry() -> None:
    r = ring(3)
    slots = SeriesSlots(SPECS)
    r.advance(10)
    r.fold(8, OWNER, delta(slots))
    r.fold(10, OWNER, delta(slots))
    r.advance(11)
    assert seen(r) == [1]
    r.advance(13)
    assert seen(r) == [0]
    assert not r.spans[0].totals


def test_an_expired_bucket_is_reported_once_if_it_was_saved() -> None:
    r = ring(3)
    slots = SeriesSlots(SPECS)
    r.advance(10)
    r.fold(10, OWNER, delta(slots))
    assert [(i, b is not None) for i, _, b in r.drain(changed=True)] == [(10, True)]
    r.fold(9, OWNER, delta(slots))
    r.advance(100)
    assert list(r.drain(changed=True)) == [(10, OWNER, None)]  # bucket 9 never reached the store
    assert list(r.drain(changed=True)) == []


def test_a_jump_of_years_costs_nothing() -> None:
    r = ring(30)
    slots = SeriesSlots(SPECS)
    r.advance(0)
    r.fold(0, OWNER, delta(slots))
    r.advance(10**12)
    assert seen(r) == [0]
    assert not r.rows


def test_a_bucket_that_was_given_away_is_not_shared() -> None:
    r = ring(3)
    slots = SeriesSlots(SPECS)
    r.advance(10)
    given = delta(slots)
    r.fold(10, OWNER, given, adopt=True)
    r.fold(10, OWNER, delta(slots, 1))
    assert r.rows[10][OWNER] is given
    assert (given.trace_count, seen(r)) == (2, [2])


def test_closed_buckets_are_sealed_and_late_ones_open_again() -> None:
    r = ring(5)
    slots = SeriesSlots(SPECS)
    r.advance(10)
    r.fold(10, OWNER, delta(slots))
    r.advance(11)
    assert isinstance(r.rows[10][OWNER].worst["error", "builtin"], bytes)
    r.fold(10, OWNER, delta(slots, 1))
    assert isinstance(r.rows[10][OWNER].worst["error", "builtin"], list)
    r.advance(12)
    assert isinstance(r.rows[10][OWNER].worst["error", "builtin"], bytes)
