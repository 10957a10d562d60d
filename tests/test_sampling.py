from __future__ import annotations

import pytest

from agent.config import load
from agent.sampling import Sampler, uniform
from tests.traces import make_trace


def sampler(**sampling: object) -> Sampler:
    return Sampler(load(environ={}, overrides={"sampling": sampling}).sampling)


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
    upstream = [f"t{n}" for n in range(20_000) if uniform(f"t{n}", b"upstream") < 0.1]
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
