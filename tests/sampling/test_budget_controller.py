"""The controller by itself; tests/sampling/test_budget_simulation.py tries it on traffic."""

from __future__ import annotations

import json
import random
import sys
import threading
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import JudgeBudgetSettings, JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_controller import (
    MAX_SERVICES,
    REST_SERVICES,
    SCALE_GRID,
    BudgetController,
    judge_controller,
    model_controller,
)

NOW = 1_760_054_400.0  # 00:00 UTC
CALLS = ScoringCost(requests=10, input_tokens=9_000, output_tokens=1_000, usd=0.01, seconds=10.0)


def warm(control: BudgetController, traffic: dict[str, float], **options: Any) -> BudgetController:
    """Two hours of traffic before `NOW`, in which the loads are learned and the bucket fills."""
    run(control, 7200, traffic, NOW - 7200, **options)
    return control


@cache
def _warmed() -> BudgetController:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    return warm(control, {"bot": 1.5})


def warmed() -> BudgetController:
    """A warm controller of 60 traces of `CALLS` a minute, of the test that asks for it alone."""
    return deepcopy(_warmed())


def run(
    control: BudgetController,
    seconds: float,
    traffic: dict[str, float],
    begin: float = NOW,
    cost: ScoringCost = CALLS,
    rate: float = 1.0,
) -> dict[str, int]:
    """Even arrivals at so many a second, each draw settled at once; draws by service."""
    rng = random.Random(1)
    drawn = dict.fromkeys(traffic, 0)
    due = dict.fromkeys(traffic, 0.0)
    while min(due.values()) < seconds:
        service = min(due, key=due.__getitem__)
        now = due[service]
        due[service] += 1 / traffic[service]
        if rng.random() < rate * control.offer(service, begin + now, rate):
            control.reserve(service, begin + now)
            control.settle(service, cost, begin + now)
            drawn[service] += 1
    return drawn


def test_without_a_limit_the_scale_is_one() -> None:
    control = BudgetController(JudgeBudgetSettings())
    assert run(control, 10, {"bot": 64.0}) == {"bot": 640}


def test_a_budget_that_is_not_reached_changes_nothing() -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    assert run(control, 60, {"bot": 0.5}) == {"bot": 30}


@pytest.mark.parametrize(
    ("budget", "draws"),
    [
        (JudgeBudgetSettings(requests_per_minute=600), 60),
        (JudgeBudgetSettings(tokens_per_minute=300_000), 30),
        (JudgeBudgetSettings(usd_per_day=864), 60),
        (JudgeBudgetSettings(requests_per_minute=600, tokens_per_minute=100_000), 10),
    ],
)
def test_each_limit_holds_and_the_scarcest_one_rules(
    budget: JudgeBudgetSettings, draws: int
) -> None:
    control = warm(BudgetController(budget, prior=CALLS), {"bot": 1.5})
    drawn = run(control, 3600, {"bot": 1.5})["bot"]
    assert drawn / 60 == pytest.approx(draws, rel=0.04)


def test_capacity_is_a_limit_too() -> None:
    control = warm(BudgetController(JudgeBudgetSettings(), capacity=2.0, prior=CALLS), {"bot": 2.5})
    assert run(control, 600, {"bot": 2.5})["bot"] / 600 == pytest.approx(0.2, rel=0.03)


def test_a_giant_leaves_the_small_ones_what_they_ask_for() -> None:
    small = {f"small{n}": 0.05 for n in range(5)}
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    drawn = run(control, 3600, {"giant": 5.0, **small})
    assert all(drawn[name] >= 175 for name in small)  # 180 came of each
    assert sum(drawn.values()) <= 3600 + 225


def test_equals_get_equal_parts_whatever_they_send() -> None:
    traffic = {"a": 5.0, "b": 2.5, "c": 1.5}
    control = warm(BudgetController(JudgeBudgetSettings(requests_per_minute=1200)), traffic)
    drawn = run(control, 3600, traffic)
    assert max(drawn.values()) < 1.1 * min(drawn.values())


def test_a_share_caps_a_service_even_when_nobody_else_wants_the_rest() -> None:
    budget = JudgeBudgetSettings(requests_per_minute=600, shares={"bot": 0.25})
    control = warm(BudgetController(budget), {"bot": 1.5})
    assert run(control, 3600, {"bot": 1.5})["bot"] / 60 == pytest.approx(15, rel=0.03)


def test_a_cost_that_was_guessed_wrongly_is_learned() -> None:
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=600), prior=ScoringCost(requests=1)
    )
    warm(control, {"bot": 1.5})
    assert run(control, 3600, {"bot": 1.5})["bot"] / 60 == pytest.approx(60, rel=0.04)


def test_what_costs_nothing_is_not_held_back() -> None:
    """All verdicts in the cache: the budget stops binding."""
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=60))
    drawn = run(control, 300, {"bot": 2.5}, cost=ScoringCost())
    assert drawn["bot"] > 0.8 * 750


def test_every_scale_is_on_the_grid_and_above_zero() -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=1))
    seen = set()
    for n in range(5000):
        scale = control.offer("bot", NOW + n / 1000)
        seen.add(scale)
        control.reserve("bot", NOW + n / 1000)
    assert seen <= set(SCALE_GRID)
    assert min(seen) > 0
    assert len(SCALE_GRID) == 321


def test_a_debt_thins_the_draws_and_stops_none() -> None:
    control = warmed()
    control.charge("bot", ScoringCost(requests=50_000), NOW)
    drawn = run(control, 60, {"bot": 1.5})["bot"]
    assert 10 <= drawn <= 25  # a quarter of 60


def test_a_charge_is_paid_back_by_drawing_less() -> None:
    drawn = []
    for charged in (0, 4000):
        control = warmed()
        control.charge("bot", ScoringCost(requests=charged), NOW)
        drawn.append(run(control, 7200, {"bot": 1.5})["bot"])
    assert drawn[0] - drawn[1] == pytest.approx(400, abs=60)


def test_a_full_queue_lowers_the_scale_smoothly_and_then_to_nothing() -> None:
    scales = []
    for waiting in (0, 200, 250, 400, 500, 700, 850, 900, 990, 1000):
        control = BudgetController(JudgeBudgetSettings())
        control.backlog(waiting, 1000)
        scales.append(control.offer("bot", NOW))
    assert scales[:3] == [1.0, 1.0, 1.0]
    assert scales == sorted(scales, reverse=True)
    assert scales[4] == pytest.approx(0.44, rel=0.05)
    assert scales[-4] == pytest.approx(0.04, rel=0.05)
    assert scales[-3:] == [0.0, 0.0, 0.0]


def test_under_overload_no_trace_is_drawn_far_below_the_usual_scale() -> None:
    """Slots for 10 traces a second and 20 a second for an hour, then 4,000."""
    cost = ScoringCost(seconds=1)
    control = BudgetController(JudgeBudgetSettings(), capacity=10.0, prior=cost)
    run(control, 3600, {"bot": 20.0}, NOW - 3600, cost)
    usual = control.offer("bot", NOW)
    flood = []
    for n in range(40_000):
        control.backlog(min(500, n // 10), 500)
        flood.append(control.offer("bot", NOW + n / 4000))
    assert usual == pytest.approx(0.5, rel=0.3)
    assert min(scale for scale in flood if scale) > usual / 40  # the grid rounds down
    assert flood[-1] == 0
    # a budget may go as low as it must: it is no overload, and every trace has a chance
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=1))
    assert min(control.offer("bot", NOW + n / 4000) for n in range(40_000)) > 0


def test_draws_of_one_instant_do_not_run_ahead() -> None:
    """A file that is read in no time at all does not spend the budget of an hour."""
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    rng = random.Random(1)
    drawn = 0
    for _ in range(20_000):
        if rng.random() < control.offer("bot", NOW):
            control.reserve("bot", NOW)
            drawn += 1
    assert drawn < 225  # what a bucket holds at first


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    control = warmed()
    drawn = run(control, 600, {"bot": 1.5}, begin=NOW - 86_400)["bot"]
    assert drawn == pytest.approx(600, rel=0.1)


def test_a_fresh_agent_judges_a_burst_of_ten_at_once() -> None:
    for settings in (JudgeSettings(), JudgeSettings(concurrency=1)):
        control = judge_controller(settings)
        for _ in range(10):
            assert control.offer("bot", NOW) == 1.0
            control.reserve("bot", NOW)
        assert control.overload == ""


def test_it_says_that_its_capacity_lowers_the_scale_until_it_has_not_for_minutes() -> None:
    control = judge_controller(JudgeSettings())
    for number in range(1000):
        if control.offer("bot", NOW + 0.001 * number) == 1.0:
            control.reserve("bot", NOW + 0.001 * number)
    assert "judge.concurrency" in control.overload
    for service, number in control.pending.items():
        for _ in range(number):
            control.settle(service, CALLS, NOW + 10)
    assert control.offer("bot", NOW + 100) == 1.0
    assert "judge.concurrency" in control.overload  # the next burst says nothing new
    control.offer("bot", NOW + 500)
    assert control.overload == ""


def test_the_capacity_follows_the_share_that_is_there() -> None:
    share = 1.0
    control = judge_controller(JudgeSettings(), lambda: share)
    control.offer("bot", NOW)
    whole = control.balances()["seconds"]
    share = 0.25
    control.offer("bot", NOW + 1)
    assert control.balances()["seconds"][0] == whole[0] / 4
    share = 1.0
    control.offer("bot", NOW + 2)
    assert control.balances()["seconds"][0] == whole[0]


def test_names_from_outside_are_bounded() -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    for n in range(2 * MAX_SERVICES):
        control.offer(f"s{n}", NOW + n * 0.01)
        control.reserve(f"s{n}", NOW + n * 0.01)
        control.settle(f"s{n}", CALLS, NOW)
    assert len(control.scales()) == MAX_SERVICES + 1
    assert REST_SERVICES in control.scales()
    assert control.pending == {}


def test_services_that_have_gone_make_room() -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=600))
    for n in range(MAX_SERVICES):
        control.offer(f"s{n}", NOW)
    for n in range(3600):
        control.offer("bot", NOW + n)
    assert control.offer("late", NOW + 3601) > 0
    control.offer("bot", NOW + 3602)
    control.offer("later", NOW + 3700)
    assert "later" in control.scales()


def test_a_restart_goes_on_where_it_was() -> None:
    budget = JudgeBudgetSettings(requests_per_minute=600, usd_per_day=10, shares={"bot": 0.5})
    control = BudgetController(budget, capacity=100)
    run(control, 300, {"bot": 10.0, "other": 5.0})
    control.reserve("bot", NOW + 300)
    state = json.loads(json.dumps(control.dump()))
    again = BudgetController(budget, capacity=100)
    again.load(state)
    assert again.dump() == control.dump()
    assert again.balances() == control.balances()
    assert again.pending == {"bot": 1}
    # not a moment of the full rate, also after an hour's absence
    assert again.offer("bot", NOW + 301) < 0.1
    assert again.offer("bot", NOW + 3900) < 0.2
    other = BudgetController(budget, capacity=100)
    other.load(state, pending={"other": 3})
    assert other.pending == {"other": 3}


@pytest.mark.parametrize("damage", [{}, {"cost": [1, 2]}, {"cost": [1, 2, 3, -1]}])
def test_a_damaged_state_is_refused(damage: dict[str, object]) -> None:
    state = {**BudgetController(JudgeBudgetSettings()).dump(), **damage} if damage else {}
    with pytest.raises((ValueError, KeyError, TypeError)):
        BudgetController(JudgeBudgetSettings()).load(state)


def test_controllers_from_the_settings() -> None:
    settings = load_settings(
        environ={},
        overrides={
            "judge": {"concurrency": 10, "input_usd_per_million": 1, "budget": {"usd_per_day": 5}},
        },
    )
    judge = judge_controller(settings.judge).balances()
    assert set(judge) == {"usd", "seconds"}
    assert judge["seconds"][0] == 9.0
    model = model_controller(2).balances()
    assert model == {"seconds": (1.8, 27.0)}  # nothing waits for it


def test_scales_can_be_read_while_new_services_are_found() -> None:
    control = BudgetController(JudgeBudgetSettings())
    broken: list[RuntimeError] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                control.scales()
            except RuntimeError as error:  # a dictionary that changed under its reader
                broken.append(error)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(MAX_SERVICES):
            control.offer(f"bot{number}", NOW)
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(usual)
    assert broken == []


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_a_part_of_the_budget_is_spent_by_whoever_has_that_part(part: float) -> None:
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=600), capacity=20.0, prior=CALLS
    )
    control.set_share(0.5)
    control.set_share(part)
    warm(control, {"bot": 1.5})
    drawn = run(control, 3600, {"bot": 1.5})["bot"]
    assert drawn / 60 == pytest.approx(60 * part, rel=0.04)


def test_the_own_capacity_is_not_divided() -> None:
    control = BudgetController(JudgeBudgetSettings(), capacity=2.0, prior=CALLS)
    control.set_share(0.1)
    warm(control, {"bot": 2.5})
    assert run(control, 600, {"bot": 2.5})["bot"] / 600 == pytest.approx(0.2, rel=0.03)


@pytest.mark.parametrize("heir", [True, False])
def test_a_day_divided_anew_costs_no_more_than_the_day(heir: bool) -> None:
    """Two workers until noon, then one of them has all of it; or one that knows of no morning."""
    budget = JudgeBudgetSettings(usd_per_day=8.64)
    morning = BudgetController(budget, prior=CALLS)
    morning.set_share(0.5)
    before = run(morning, 43_200, {"bot": 0.2})["bot"]
    assert before * CALLS.usd == pytest.approx(8.64 / 4, rel=0.05)
    rest = morning if heir else BudgetController(budget, prior=CALLS)
    rest.set_share(1.0)
    after = run(rest, 43_199, {"bot": 0.2}, NOW + 43_200)["bot"]
    assert after * CALLS.usd == pytest.approx(8.64 / 2, rel=0.05)
