"""Streams: thin buckets merged, directions, restart."""

from __future__ import annotations

import json
import random

from ragmeter.drift.baseline import Baseline
from ragmeter.drift.detectors import DriftStream


def base(level: float, sd: float = 0.3) -> Baseline:
    return Baseline(1, 0, 86400, (level,), (86400.0,), sd, 1.0, False, 60.0, 1440)


def test_thin_buckets_are_merged_until_there_is_enough() -> None:
    stream = DriftStream([base(0.5)])
    assert stream.add(0, 4, [2.0]) is None
    assert stream.add(60, 4, [2.0]) is None
    merged = stream.add(120, 4, [2.0])
    assert merged is not None
    assert merged == DriftStream([base(0.5)]).add(0, 12, [6.0])


def test_lower_values_are_bad_where_more_is_better() -> None:
    good, bad = DriftStream([base(0.8)], sign=-1), DriftStream([base(0.8)], sign=-1)
    for i in range(60):
        up, down = good.add(i * 60, 60, [60 * 0.9]), bad.add(i * 60, 60, [60 * 0.7])
    assert up is not None
    assert down is not None
    assert up < 20 < 43200 < down


def test_either_direction_is_found_two_sided() -> None:
    for level in (0.7, 0.9):
        stream = DriftStream([base(0.8)], two_sided=True)
        for i in range(60):
            found = stream.add(i * 60, 60, [60 * level])
        assert found is not None
        assert found > 43200


def test_a_stream_restored_goes_on_bit_for_bit() -> None:
    rng = random.Random(2)
    one = DriftStream([base(0.2), base(0.5)], -1, True, 20, 0.01)
    rows = [(i * 60.0, 15.0, [15 * rng.random(), 15 * rng.random()]) for i in range(101)]
    for row in rows:
        one.add(*row)
    other = DriftStream.load(json.loads(json.dumps(one.dump())))
    for row in rows:
        assert one.add(*row) == other.add(*row)
    assert one.dump() == other.dump()
    one.restart()
    assert one.esr.statistic == 0
    assert one.add(0, 1, [1.0, 1.0]) is None
