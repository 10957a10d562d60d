from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.sampling.budget_controller import (
    MAX_SERVICES,
    BudgetController,
    model_controller,
)
from ragmeter.sampling.sampler import (
    RATE_FLOOR,
    SALT,
    ReplayBudget,
    Sampler,
    SamplingDraw,
    uniform_fraction,
)
from ragmeter.trace import Trace

from tests.traces import START, make_trace


def sampler(salt: str = SALT, **sampling: object) -> Sampler:
    settings = load_settings(environ={}, overrides={"sampling": sampling}).sampling
    return Sampler(settings, salt=salt)


def test_a_draw_is_the_same_everywhere() -> None:
    ids = [f"t{n}" for n in range(200)]
    first, second = sampler(judge=0.3), sampler(judge=0.3)
    draws = [first.draw(make_trace(trace_id=i), "judge") for i in ids]
    assert draws == [second.draw(make_trace(trace_id=i), "judge") for i in ids]


def test_sequential_ids_are_drawn_at_the_rate() -> None:
    judged = sampler(judge=0.05)
    taken = sum(judged.draw(make_trace(n), "judge").taken for n in range(20_000))
    assert abs(taken / 20_000 - 0.05) < 0.005  # three standard errors


def test_an_upstream_sampler_with_the_same_hash_does_not_bend_our_rate() -> None:
    """With a shared key the 10 % kept upstream would be judged at 50 % instead of 5 %."""
    upstream = [f"t{n}" for n in range(20_000) if uniform_fraction(f"t{n}", b"upstream") < 0.1]
    judged = sampler(judge=0.05)
    taken = sum(judged.draw(make_trace(trace_id=i), "judge").taken for i in upstream)
    assert abs(taken / len(upstream) - 0.05) < 0.02


def test_tiers_and_salts_draw_apart() -> None:
    ids = [f"t{n}" for n in range(500)]
    one, other = sampler(judge=0.5, model=0.5), sampler(judge=0.5, salt="other")
    judge = [one.draw(make_trace(trace_id=i), "judge").taken for i in ids]
    assert judge != [one.draw(make_trace(trace_id=i), "model").taken for i in ids]
    assert judge != [other.draw(make_trace(trace_id=i), "judge").taken for i in ids]


def test_a_service_may_have_its_own_rate_and_upstream_multiplies() -> None:
    judged = sampler(judge=0.1, services={"vip": {"judge": 1.0}})
    draw = judged.draw(make_trace(service="vip", sampling={"probability": 0.25}), "judge")
    assert draw.taken
    assert draw.probability == 0.25
    assert judged.draw(make_trace(), "judge").probability == pytest.approx(0.1)


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


def test_a_budget_scales_the_rate_and_every_draw_carries_what_held() -> None:
    clock = Clock()
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=60), prior=ScoringCost(requests=1)
    )
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.5}}).sampling
    judged = Sampler(settings, {"judge": control}, clock)
    draws = []
    for n in range(6000):
        clock.now += 0.01
        draws.append(judged.draw(make_trace(n, sampling={"probability": 0.5}), "judge"))
    assert sum(draw.taken for draw in draws[1000:]) == pytest.approx(50, abs=25)
    late = {draw.probability for draw in draws[1000:]}
    assert all(0 < probability < 0.05 for probability in late)
    assert len(late) < 40  # windows group scores by it
    # 1/pi over the draws counts what arrived
    weights = [0.5 / draw.probability for draw in draws if draw.taken]
    assert sum(weights) == pytest.approx(6000, rel=0.35)
    # a tier without a controller is drawn as ever
    assert judged.draw(make_trace(1), "model").probability == 0.05


def test_a_budget_that_does_not_bind_changes_no_draw() -> None:
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.3}}).sampling
    free = Sampler(settings)
    held = Sampler(settings, {"judge": BudgetController(JudgeBudgetSettings())}, Clock())
    traces = [make_trace(n) for n in range(300)]
    assert [held.draw(t, "judge") for t in traces] == [free.draw(t, "judge") for t in traces]


def test_a_drawn_trace_is_reserved() -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=1e9))
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 1.0}}).sampling
    judged = Sampler(settings, {"judge": control}, Clock())
    for n in range(3):
        judged.draw(make_trace(n), "judge")
    assert control.pending == {"bot": 3}


def test_a_stratum_is_drawn_more_often_and_counts_for_more_of_the_budget() -> None:
    """A third of the traces at three times the rate: 100 draws a minute are kept all the same."""
    clock = Clock()
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=100), prior=ScoringCost(requests=1)
    )
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.5}}).sampling
    judged = Sampler(settings, {"judge": control}, clock)
    taken = {1.0: 0, 3.0: 0}
    stood_for = {1.0: 0.0, 3.0: 0.0}
    for n in range(60_000):
        clock.now += 0.02
        ratio = 3.0 if n % 3 == 0 else 1.0
        draw = judged.draw(make_trace_fast(n), "judge", ratio)
        if draw.taken:
            taken[ratio] += 1
            stood_for[ratio] += 1 / draw.probability
            control.settle("bot", ScoringCost(requests=1), clock.now)
    assert taken[3.0] / taken[1.0] == pytest.approx(1.5, rel=0.15)
    assert sum(taken.values()) == pytest.approx(2000, rel=0.1)
    assert stood_for[3.0] == pytest.approx(20_000, rel=0.15)
    assert stood_for[1.0] == pytest.approx(40_000, rel=0.15)


VALID = make_trace()


def make_trace_fast(number: int, service: str = VALID.service) -> Trace:
    """Validation would be most of the test."""
    return VALID.model_copy(update={"trace_id": f"t{number}", "service": service})


def test_no_stratum_is_starved() -> None:
    clock = Clock()
    control = BudgetController(
        JudgeBudgetSettings(requests_per_minute=0.001), prior=ScoringCost(requests=1)
    )
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.5}}).sampling
    judged = Sampler(settings, {"judge": control}, clock)
    pis = [judged.draw(make_trace(n), "judge", 3.0).probability for n in range(300)]
    assert min(pis) == pytest.approx(0.5 * 3 * RATE_FLOOR)


def test_rates_change_from_the_next_draw_on() -> None:
    judged = sampler(judge=0.1)
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.4}}).sampling
    ids = [make_trace(n) for n in range(300)]
    judged.update(settings)
    fresh = Sampler(settings)
    assert [judged.draw(t, "judge") for t in ids] == [fresh.draw(t, "judge") for t in ids]


def test_beside_a_busy_service_a_quiet_one_has_its_model_scores_of_each_hour() -> None:
    """With measured costs that make the busy one alone ask for more than there is."""
    settings = load_settings(environ={}, overrides={}).sampling
    now = 1_760_054_400.0
    control = model_controller(0.1)
    live = Sampler(settings, {"model": control}, lambda: now)
    cost = ScoringCost(seconds=0.25)
    traces = {name: make_trace(service=name) for name in ("quiet", "busy")}
    draws = []
    for n in range(2 * 3600 * 10):
        now += 0.1
        name = "busy" if n % 12 else "quiet"  # 50 a minute
        trace = traces[name].model_copy(update={"trace_id": f"t{n}"})
        draw = live.draw(trace, "model")
        if draw.taken:
            control.settle(name, cost, now)
            draws.append((n // 36_000, name, 1 / draw.probability))
    for hour in (0, 1):
        assert cost.seconds * sum(one[0] == hour for one in draws) < 0.1 * 3600
        weights = [weight for when, name, weight in draws if (when, name) == (hour, "quiet")]
        assert len(weights) > 90
        assert sum(weights) ** 2 / sum(weight**2 for weight in weights) > 0.95 * len(weights)
        assert sum(weights) == pytest.approx(3000, rel=0.3)
    assert {weight for _, name, weight in draws if name == "busy"} != {20.0}  # it was scaled down


class Replay:
    """A replay whose traces take a millisecond of CPU and whose draws take `draw` seconds."""

    def __init__(self, share: float = 0.2, draw: float = 0.2, salt: str = SALT, **sampling: Any):
        self.own = 2.0  # to start
        self.model = 0.0
        self.draw = draw
        self.waiting = 0
        self.opened = False
        settings = load_settings(environ={}, overrides={"sampling": sampling}).sampling
        self.budget = ReplayBudget(share, lambda: self.own + self.model)
        self.sampler = Sampler(settings, replays={"model": self.budget}, salt=salt)
        self.sampler.paced = False

    def offer(self, trace: Trace) -> SamplingDraw:
        self.own += 0.001
        drawn = self.sampler.draw(trace, "model")
        self.waiting += drawn.taken
        return drawn

    def settle(self) -> None:
        for _ in range(self.waiting):
            seconds = self.draw + (0.0 if self.opened else 0.7)
            self.opened = True
            self.model += seconds
            self.budget.settle(ScoringCost(seconds=seconds))
        self.waiting = 0


@pytest.mark.parametrize("rate", [0.05, 0.9])
@pytest.mark.parametrize("draw", [0.02, pytest.param(0.2, marks=pytest.mark.slow), 0.8])
@pytest.mark.parametrize("behind", [1, pytest.param(16, marks=pytest.mark.slow), 512])
def test_the_draws_of_a_replay_stay_within_a_share_of_its_cpu_time_and_use_it(
    rate: float, draw: float, behind: int
) -> None:
    replay = Replay(draw=draw, model=rate)
    draws = []
    for number in range(20_000):
        draws.append(replay.offer(make_trace_fast(number, f"s{number % 3}")))
        if number % behind == behind - 1:
            replay.settle()
        if number in (5_000, 10_000):
            assert replay.model / replay.own < 0.25
    assert 0.1 < replay.model / replay.own < 0.25
    assert len({draw.probability for draw in draws}) < 40  # windows group scores by it
    assert not any(draw.shed for draw in draws)


def test_services_of_a_replay_share_what_its_model_may_take() -> None:
    replay = Replay(model=0.3)
    taken: Counter[str] = Counter()
    for number in range(60_000):
        name = "busy" if number % 12 else "quiet"
        taken[name] += replay.offer(make_trace_fast(number, name)).taken
        replay.settle()
    assert 0.7 < taken["quiet"] / taken["busy"] < 1.4


def test_what_a_replay_draws_counts_for_all_its_traces() -> None:
    """1/pi summed over the draws is the number of traces, over many salts and for two services."""
    sums = []
    traces = [make_trace_fast(n, f"s{n % 2}") for n in range(2000)]
    for salt in range(200):
        replay = Replay(model=0.3, draw=0.01, salt=str(salt))
        total = 0.0
        for trace in traces:
            drawn = replay.offer(trace)
            total += drawn.taken / drawn.probability
            replay.settle()
        sums.append(total)
    mean = statistics.fmean(sums)
    spread = statistics.stdev(sums) / math.sqrt(len(sums))
    assert abs(mean - 2000) < 4 * spread
    assert spread < 150


def replayed(**sampling: object) -> Sampler:
    settings = load_settings(environ={}, overrides={"sampling": sampling}).sampling
    replay = Sampler(settings, replays={"model": ReplayBudget(0.2, lambda: 2.0)})
    replay.paced = False
    return replay


def test_a_rate_of_one_asks_for_every_trace_of_a_replay() -> None:
    replay = replayed(model=0.4, services={"vip": {"model": 1.0}})
    assert all(replay.draw(make_trace(n, service="vip"), "model").taken for n in range(500))
    stratified = [replay.draw(make_trace(n), "model", 3.0) for n in range(500)]
    assert sum(draw.taken for draw in stratified) < 110  # 1.2 is a rate of a stratum, and bounded


def test_live_draws_and_other_tiers_know_no_replay_budget() -> None:
    replay = replayed(model=0.3, judge=0.3)
    free = sampler(model=0.3, judge=0.3)
    traces = [make_trace(n) for n in range(500)]
    assert [replay.draw(one, "judge") for one in traces] == [
        free.draw(one, "judge") for one in traces
    ]
    replay.paced = True
    assert [replay.draw(one, "model") for one in traces] == [
        free.draw(one, "model") for one in traces
    ]


def test_a_replay_budget_holds_so_many_services() -> None:
    budget = ReplayBudget(0.2, lambda: 2.0)
    for number in range(MAX_SERVICES + 50):
        budget.offer(f"s{number}", 0.0)
    assert len(budget._wanted) == MAX_SERVICES + 1
