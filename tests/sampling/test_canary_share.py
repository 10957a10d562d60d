"""What canaries may take of the judge's budget."""

from __future__ import annotations

import json

import pytest
from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_accounts import DAY, HOUR, START_SECONDS, CanaryShare
from ragmeter.sampling.budget_controller import BudgetController

NOW = 1_760_054_400.0
PRIOR = (10.0, 10_000.0, 0.01, 15.0)
TEN = ScoringCost(requests=10, seconds=1.0)


def share(rate: float = 1.0, place: int = 0) -> CanaryShare:
    return CanaryShare({place: rate}, PRIOR)


def admitted(of: CanaryShare, number: int, now: float = NOW) -> int:
    """Of so many canaries that come at once, how many may ask."""
    return sum(of.admit(now) for _ in range(number))


def test_what_comes_beyond_the_part_is_refused_and_the_next_round_has_room_again() -> None:
    one = share()
    first = admitted(one, 1000)
    assert first == START_SECONDS / 10
    for _ in range(first):
        one.settle((10.0, 0.0, 0.0, 0.0))
    assert not one.admit(NOW)
    assert admitted(one, 1000, NOW + 300) == 30


def test_a_part_below_the_cost_of_one_still_admits_one_in_its_time() -> None:
    one = share(rate=0.001)  # 0.9 to begin with
    assert admitted(one, 5) == 1
    one.settle((10.0, 0.0, 0.0, 0.0))
    assert not one.admit(NOW + HOUR)
    assert one.admit(NOW + 10_000)


@pytest.mark.parametrize(("place", "kept"), [(0, HOUR), (2, DAY)])
def test_a_rare_suite_has_the_part_of_its_time_kept(place: int, kept: float) -> None:
    one = CanaryShare({place: 1.0}, (100.0,) * 4)
    one.admit(NOW)
    one.settle((0.0,) * 4)  # it is learned at once that this one was free
    one.settle((200.0,) * 4)
    one.settle((100.0,) * 4)
    assert admitted(one, 10_000, NOW + 10 * DAY) == kept / 100


def test_a_clock_that_is_set_back_takes_nothing_away_and_gives_what_has_passed_since() -> None:
    one = share()
    admitted(one, 1000)
    assert not one.admit(NOW - 3600)
    assert admitted(one, 100, NOW - 3580) == 2


def controller(canaries: float = 0.5) -> BudgetController:
    return BudgetController(JudgeBudgetSettings(requests_per_minute=60, canaries=canaries))


def balance(of: BudgetController) -> float:
    return of.balances()["requests"][1]


def test_the_whole_budget_pays_for_canaries_and_for_no_more_than_their_part() -> None:
    control = controller()
    control.offer("bot", NOW)
    before = balance(control)
    judged = 0
    for _ in range(1000):
        if control.admit_canary(NOW):
            judged += 1
            control.settle_canary("bot", TEN, NOW)
    assert judged == 0.5 * START_SECONDS / 10
    assert before - balance(control) == 10 * judged
    assert control.pending == {}


def test_the_pace_of_the_traffic_follows_what_canaries_have_taken() -> None:
    scales = []
    for canaries in (0, 20):
        control = controller()
        for second in range(60):
            for _ in range(4):
                if control.offer("bot", NOW + second) > 0.9:
                    control.reserve("bot", NOW + second)
                    control.settle("bot", TEN, NOW + second)
        for _ in range(canaries):
            assert control.admit_canary(NOW + 60)
            control.settle_canary("bot", TEN, NOW + 60)
        control.offer("bot", NOW + 61)
        scales.append(control.scales()["bot"])
    without, with_canaries = scales
    assert 0 < with_canaries < without


def test_one_of_several_workers_has_its_part_of_the_part() -> None:
    control = controller()
    control.set_share(0.5)
    assert sum(control.admit_canary(NOW) for _ in range(1000)) == 0.25 * START_SECONDS / 10 + 0.5


def test_without_a_part_there_is_a_controller_all_the_same() -> None:
    control = controller(canaries=0.0)
    control.set_share(0.5)
    assert control.dump()["canaries"]["balances"] == {}


def test_a_restart_goes_on_where_it_was() -> None:
    control = controller()
    while control.admit_canary(NOW):
        control.settle_canary("bot", TEN, NOW)
    again = controller()
    again.load(json.loads(json.dumps(control.dump())), {}, 0)
    assert not again.admit_canary(NOW)
    assert again.dump() == control.dump()
    waiting = controller()
    state = json.loads(json.dumps(controller().dump()))
    waiting.load(state, {}, 40)  # of 45 that there is room for
    assert sum(waiting.admit_canary(NOW) for _ in range(100)) == 5
