from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.chaos.embedded.faults import ENDS, KINDS, lane_of, plan, suffered


@pytest.mark.parametrize("seconds", [20.0, 60.0, 600.0])
def test_a_plan_has_every_fault_and_ends_before_the_run(seconds: float) -> None:
    for seed in range(20):
        faults = plan(seed, seconds)
        assert {fault.kind for fault in faults} == set(KINDS)
        assert all(fault.at >= 0 and fault.lasts >= 0 for fault in faults)
        assert max(fault.at + fault.lasts for fault in faults) <= ENDS * seconds + 1e-6
        assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)


def test_a_seed_says_what_goes_wrong_and_when() -> None:
    assert plan(3, 600) == plan(3, 600)
    assert plan(3, 600) != plan(4, 600)
    kinds = Counter(fault.kind for fault in plan(3, 600))
    assert kinds["kill"] == 30
    assert min(kinds.values()) >= 3
    aims = Counter(fault.aimed for fault in plan(3, 6000) if fault.kind == "kill")
    assert 0.6 < aims[True] / aims.total() < 0.8


def test_a_judge_suffers_of_all_that_lasts_and_lies_about_the_rest() -> None:
    assert suffered([]) == suffered(["kill", "clock"]) == {}
    assert list(suffered(["judge-lie", "judge-hang"]).items()) == [("hang", 0.7), ("wrong", 1.0)]


def test_the_judge_and_each_kind_suffer_one_thing_at_a_time() -> None:
    for seed in range(20):
        lanes: dict[str, list[tuple[float, float]]] = {}
        for fault in plan(seed, 300):
            lanes.setdefault(lane_of(fault.kind), []).append((fault.at, fault.at + fault.lasts))
        for spans in lanes.values():
            assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(spans))
