from __future__ import annotations

import random
from typing import Literal

import pytest

from agent.aggregate import Aggregator
from agent.config import load
from agent.sampling import Sampler, uniform
from agent.score import Scorer
from agent.trace import Score, State, Trace
from tests.traces import START, make_trace


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


class Judge:
    """A judge tier that reads the truth from a tag."""

    tier: Literal["judge"] = "judge"
    pairs = (("grounding", "judge"),)

    def score(self, trace: Trace) -> list[Score]:
        return [Score("grounding", "judge", State.SCORED, float(trace.tags["truth"]))]


def test_a_tier_scores_what_it_drew_and_says_of_the_rest_that_it_did_not() -> None:
    scorer = Scorer(builtin=False, sampler=sampler(judge=0.2), tiers=[Judge()])
    assert ("grounding", "judge") in scorer.expected
    scored = [scorer.score(make_trace(n, tags={"truth": 1})).results[-1] for n in range(300)]
    states = [score.state for score in scored]
    assert set(states) == {State.SCORED, State.SAMPLED_OUT}
    assert all(s.probability == pytest.approx(0.2) for s in scored if s.state is State.SCORED)


def test_a_tier_that_answers_wrongly_still_gives_one_result_for_each_pair() -> None:
    class Sloppy(Judge):
        def score(self, trace: Trace) -> list[Score]:
            return [Score("relevance", "someone", State.SCORED, 1.0)] * 2

    scorer = Scorer(builtin=False, sampler=sampler(judge=1.0), tiers=[Sloppy()])
    results = scorer.score(make_trace()).results
    assert [(score.metric, score.scorer) for score in results] == scorer.expected
    assert results[-1].reason == "internal_error"


def test_probability_reaches_the_estimate_under_error_biased_sampling() -> None:
    """Upstream keeps every error and 10 % of the rest; errors are less grounded.

    The weighted estimates recover the truth of all traffic; the plain means of what arrived are
    far off.
    """
    rng = random.Random(1)
    settings = load(environ={}, overrides={"sampling": {"judge": 0.5}})
    scorer = Scorer(builtin=False, sampler=Sampler(settings.sampling), tiers=[Judge()])
    aggregator = Aggregator(settings, [], scorer.expected)
    truth_error, truth_quality, plain_error, plain_quality = [], [], [], []
    for number in range(40_000):
        failed = rng.random() < 0.05
        quality = rng.betavariate(2, 6) if failed else rng.betavariate(8, 2)
        truth_error.append(failed)
        truth_quality.append(quality)
        keep = 1.0 if failed else 0.1
        if rng.random() >= keep:
            continue
        plain_error.append(failed)
        plain_quality.append(quality)
        trace = make_trace(
            number,
            timestamp=START + number * 0.05,
            status="error" if failed else "ok",
            tags={"truth": quality},
            sampling={"probability": keep},
        )
        aggregator.apply(scorer.score(trace))
    error = aggregator.windows.estimate("bot", "", "error", "builtin", "1h")
    grounding = aggregator.windows.estimate("bot", "", "grounding", "judge", "1h")
    assert error is not None
    assert grounding is not None
    rate = sum(truth_error) / len(truth_error)
    mean = sum(truth_quality) / len(truth_quality)
    assert error.lower < rate < error.upper
    assert grounding.lower < mean < grounding.upper
    assert abs(error.value - rate) < 0.005
    assert abs(grounding.value - mean) < 0.01
    assert sum(plain_error) / len(plain_error) > 5 * rate
    assert sum(plain_quality) / len(plain_quality) < mean - 0.1
