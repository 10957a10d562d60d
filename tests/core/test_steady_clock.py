from __future__ import annotations

from ragmeter.core.clocks import make_steady_clock


def test_it_begins_as_the_wall_clock_and_goes_on_evenly() -> None:
    wall, even = [1_790_000_000.0], [50.0]
    now = make_steady_clock(lambda: wall[0], lambda: even[0])
    assert now() == 1_790_000_000.0
    wall[0] -= 3600
    even[0] += 5
    assert now() == 1_790_000_005.0
