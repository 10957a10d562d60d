"""Partial buckets of many senders are the buckets of one: what docs/scaling.md rests on."""

from __future__ import annotations

import pytest
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, encode_score

from benchmarks.kafka_preaggregation import direct, empty, merged, rows_of, split
from benchmarks.per_trace import traffic


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize("size", [1, 7, 50])
def test_rows_do_not_depend_on_how_traces_were_split(parts: int, size: int) -> None:
    traces = list(traffic(10, 0, 30))
    records = [encode_score(ScoreRecord(one, SourceOffset(0, n))) for n, one in enumerate(traces)]
    one, other = empty(), empty()
    direct(one, records)
    partials = split(traces, parts, size, seed=size)
    assert sum(partial.traces for partial in partials) == len(traces)
    merged(other, partials)
    assert rows_of(one) == rows_of(other)


def test_a_partial_bucket_that_is_missing_or_there_twice_shows() -> None:
    traces = list(traffic(10, 0, 30))
    partials = split(traces, 3, 10)
    whole, less, more = empty(), empty(), empty()
    merged(whole, partials)
    merged(less, partials[1:])
    merged(more, [*partials, partials[0]])
    assert rows_of(whole) != rows_of(less)
    assert rows_of(whole) != rows_of(more)
