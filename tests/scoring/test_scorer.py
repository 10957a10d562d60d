"""The score half: one result a pair, at once or owed by the tier that has drawn the trace."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.sampling.sampler import Sampler
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.trace import Trace

from tests.traces import START, make_trace

JUDGED: tuple[MetricScorer, ...] = (("grounding", "judge"), ("answered", "judge"))


def scorer(rate: float) -> Scorer:
    settings = load_settings(environ={}, overrides={"sampling": {"judge": rate}})
    sampler = Sampler(settings.sampling)
    return Scorer(builtin=False, sampler=sampler, tiers={"judge": JUDGED})


def test_results_of_a_drawn_trace_are_pending_and_the_others_are_sampled_out() -> None:
    half = scorer(0.2)
    assert set(JUDGED) <= set(half.pairs)
    drawn = 0
    for n in range(300):
        found = half.score(make_trace(n))
        given = [(score.metric, score.scorer) for score in found.trace.results]
        if found.draws:
            drawn += 1
            assert found.draws["judge"].probability == pytest.approx(0.2)
            assert given == half.pairs[: -len(JUDGED)]
        else:
            assert given == half.pairs
            assert {score.state for score in found.trace.results[-2:]} == {ScoreState.SAMPLED_OUT}
    assert 30 < drawn < 90


def test_what_overload_leaves_no_draw_is_shed_and_the_estimate_says_what_it_covers() -> None:
    """Of 300 traces the queue has no room for the last hundred, which are the bad ones."""
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.9}})
    control = BudgetController(settings.judge.budget)
    sampler = Sampler(settings.sampling, {"judge": control}, lambda: START)
    whole = Scorer(builtin=False, sampler=sampler, tiers={"judge": JUDGED})
    aggregator = Aggregator(settings, [], whole.pairs)
    states: Counter[ScoreState] = Counter()
    for number in range(300):
        control.backlog(100 if number >= 200 else 0, 100)
        control._due = START  # the next offer takes it in
        trace = make_trace(number, timestamp=START + number)
        states += Counter(
            score.state
            for score in whole.draw(whole.score_alone(trace)).trace.results
            if (score.metric, score.scorer) == JUDGED[0]
        )
        _judged(aggregator, whole, trace, 0.9 if number < 200 else 0.1)
    assert states[ScoreState.SHED] == 100
    found = aggregator.windows.estimate("bot", "", "grounding", "judge", "1h")
    assert found is not None
    assert found.unscored == pytest.approx(1 / 3, abs=0.03)
    assert found.lower < (0.9 * 200 + 0.1 * 100) / 300 < found.upper


def test_tiers_need_a_sampler_and_known_metrics() -> None:
    with pytest.raises(ValueError, match="sampler"):
        Scorer(tiers={"judge": JUDGED})
    with pytest.raises(ValueError, match="no_such_metric"):
        Scorer(sampler=scorer(1)._sampler, tiers={"judge": [("no_such_metric", "judge")]})


def test_whatever_a_tier_returns_each_pair_gets_one_result() -> None:
    stray = Score("relevance", "someone", ScoreState.SCORED, 1.0)
    own = Score("answered", "judge", ScoreState.SCORED, 1.0, probability=0.5)
    results = complete_results([stray, own, stray], JUDGED, 0.2)
    assert [(score.metric, score.scorer) for score in results] == list(JUDGED)
    assert results[0].reason == "internal_error"
    assert results[1].value == 1.0
    assert results[1].probability == pytest.approx(0.1)
    assert complete_results([], JUDGED, 1, "not_configured")[0].reason == "not_configured"


@pytest.mark.slow
def test_probability_reaches_the_estimate_under_error_biased_sampling() -> None:
    """Upstream keeps every error and 10 % of the rest; errors are less grounded.

    The weighted estimates recover the truth of all traffic; the plain means of what arrived are
    far off.
    """
    rng = random.Random(1)
    settings = load_settings(environ={}, overrides={"sampling": {"judge": 0.5}})
    half = scorer(0.5)
    aggregator = Aggregator(settings, [], half.pairs)
    truth_error = []
    truth_quality = []
    plain_error = []
    plain_quality = []
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
            sampling={"probability": keep},
        )
        _judged(aggregator, half, trace, quality)
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


def _judged(aggregator: Aggregator, scorer: Scorer, trace: Trace, quality: float) -> None:
    found = scorer.score(trace)
    aggregator.apply(
        found.trace, [pair for tier in found.draws for pair in scorer.pending_pairs(found, tier)]
    )
    for draw in found.draws.values():
        score = Score("grounding", "judge", ScoreState.SCORED, quality)
        results = complete_results([score], JUDGED, draw.probability, stratum=draw.stratum)
        part = summarise_trace(trace, results)
        aggregator.finish(part._replace(partial=True, timings={}))
