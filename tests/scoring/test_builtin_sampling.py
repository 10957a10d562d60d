"""The built-in tier as a sample: no estimate bends, neither its own nor those that it helps."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.builtin import PreparedTrace
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import SALT, Sampler, StratumClassifier, overload_scale
from ragmeter.scoring.scorer import Scorer, TraceScores, complete_results
from ragmeter.windows.windows import Windows

from tests.tables import each_row
from tests.traces import START, make_trace

JUDGED = (("relevance", "umbrela"),)
CONTROL = SamplingControl(
    1,
    low={"bot": {"relevance": 1.2}},
    first={"bot": {"": START - 86400, "model=old": START - 86400, "model=young": START - 60}},
)


def sampling(**values: object) -> SamplingSettings:
    return load_settings(environ={}, overrides={"sampling": values}).sampling


def scorer(settings: SamplingSettings, salt: str = SALT) -> Scorer:
    strata = StratumClassifier((), CONTROL)
    return Scorer(sampler=Sampler(settings, salt=salt), tiers={"judge": JUDGED}, strata=strata)


def test_what_is_not_drawn_is_sampled_out_and_operation_is_counted_of_every_trace() -> None:
    half = scorer(sampling(builtin=0.2, judge=0.5))
    drawn = 0
    for n in range(400):
        found = half.score(make_trace(n))
        trace = found.trace
        assert [(score.metric, score.scorer) for score in trace.results[: len(half.pairs) - 1]] == (
            half.pairs[:-1]
        )
        cheap = trace.results[: len(half.cheap_pairs)]
        quality = trace.results[len(cheap) : len(half.pairs) - 1]
        assert {score.stratum for score in cheap} == {""}
        assert all(score.state is not ScoreState.SAMPLED_OUT for score in cheap)
        assert {(score.probability, score.stratum) for score in quality} == {(0.2, "rest:2")}
        out = {score.state is ScoreState.SAMPLED_OUT for score in quality}
        assert len(out) == 1
        assert (not found.cheap) == (out == {True})
        drawn += out == {False}
    assert 50 < drawn < 110
    again = [half.score(make_trace(n)).trace.results[-2].state for n in range(400)]
    assert again == [half.score(make_trace(n)).trace.results[-2].state for n in range(400)]


def test_drawn_with_certainty_it_belongs_to_no_stratum() -> None:
    """With the default, and in a stratum whose ratio reaches 1."""
    plain = Scorer().score(make_trace(1)).trace
    assert Scorer(sampler=Sampler(sampling())).score(make_trace(1)).trace == plain
    often = scorer(sampling(builtin=0.5, judge=1.0))
    failed = often.score(make_trace(1, answer="", sampling={"probability": 0.5})).trace
    assert {(one.stratum, one.probability) for one in failed.results} == {("", 0.5)}


@each_row(
    ("filled", "scale"),
    [
        (0.0, 1.0),
        (0.5, 1.0),
        (0.51, 0.5),
        (0.625, 0.5),
        (0.63, 0.25),
        (0.8, 0.125),
        (0.88, 1 / 16),
        (1.0, 1 / 16),
        (7.0, 1 / 16),
    ],
)
def test_beyond_half_a_queue_each_eighth_halves_the_rate(filled: float, scale: float) -> None:
    assert overload_scale(filled) == scale


def test_a_scale_holds_for_live_traffic_alone_and_is_carried() -> None:
    settings = sampling(services={"rag": {"builtin": 0.5}})
    sampler = Sampler(settings)
    sampler.builtin_scale = 0.25
    half = Scorer(sampler=sampler, strata=StratumClassifier())
    for service, rate in (("bot", 0.25), ("rag", 0.125)):
        score = half.score(make_trace(1, service=service)).trace.results[-1]
        assert score.probability == rate
        assert score.stratum == f"rest:{2 if service == 'bot' else 3}"
    sampler.paced = False  # a replay
    assert half.score(make_trace(1)).trace.results[-1].probability == 1


def population(
    rng: random.Random, half: Scorer, scales: bool
) -> Iterator[tuple[float, TraceScores]]:
    """The judge's grade of each trace, and its scores.

    A tenth has no built-in score and bad grades; the traces of a new model are worse than others
    and drawn more often, those with a low built-in score are judged more often.
    """
    unread = PreparedTrace(make_trace(1))
    for n in range(2500):
        young, hidden = rng.random() < 0.1, rng.random() < 0.1
        grade = rng.choices([0, 1, 2, 3], [4, 3, 2, 1] if young or hidden else [1, 2, 3, 4])[0]
        cheap = min(3.0, max(0.0, grade + rng.gauss(0, 0.6)))
        summary = ScoredTrace(
            f"{rng.random()}-{n}",
            "bot",
            START + n / 10,
            "ok",
            [],
            1.0 if n % 3 else 0.5,
            tags={"model": "young" if young else "old"},
        )
        state = ScoreState.NOT_APPLICABLE if hidden else ScoreState.SCORED
        value = None if hidden else cheap
        p = summary.probability
        builtin = [
            Score(metric, name, state, value, None, p)
            if metric == "relevance"
            else Score(metric, name, ScoreState.NOT_APPLICABLE, None, "x", p)
            for metric, name in half.builtin_pairs
        ]
        if scales and half._sampler is not None:  # a queue that fills and empties
            half._sampler.builtin_scale = (1.0, 0.25, 0.0625, 0.5)[n * 4 // 2500]
        yield grade, TraceScores(summary, False, False, unread, builtin)


@pytest.mark.slow
@pytest.mark.parametrize("scales", [pytest.param(False, marks=pytest.mark.slow), True])
def test_estimates_are_unbiased_with_every_fifth_trace_scored(scales: bool) -> None:
    """The built-in estimate and the judge's over 12 hours of made-up traffic; with scales, while
    the built-in rate moves."""
    rng = random.Random(8)
    names = ("builtin", "umbrela")
    errors: dict[str, list[float]] = {name: [] for name in names}
    covered = dict.fromkeys(names, 0)
    for _ in range(12):
        half = scorer(sampling(builtin=0.2, judge=0.1), str(rng.random()))
        windows = Windows(specs=metric_specs())
        graded = whole = cheap_sum = cheap_weight = 0.0
        for grade, scores in population(rng, half, scales):
            weight = 1 / scores.probability
            graded += weight * grade
            whole += weight
            assert scores.builtin is not None
            relevance = scores.builtin[0]
            if relevance.value is not None:
                cheap_sum += weight * relevance.value
                cheap_weight += weight
            found = half.draw(scores)
            windows.add(found.trace, "bot", [])
            for draw in found.draws.values():
                score = Score("relevance", "umbrela", ScoreState.SCORED, float(grade))
                (result,) = complete_results(
                    [score], JUDGED, draw.probability, stratum=draw.stratum, cheap=found.cheap
                )
                windows.add(
                    found.trace._replace(results=[result], pending=(), partial=True), "bot", []
                )
        truths = dict.fromkeys(names, graded / whole) | {"builtin": cheap_sum / cheap_weight}
        for name, truth in truths.items():
            found_interval = windows.estimate("bot", "", "relevance", name, "24h")
            assert found_interval is not None
            errors[name].append(found_interval.value - truth)
            covered[name] += found_interval.lower <= truth <= found_interval.upper
    for name in names:
        bias = statistics.mean(errors[name])
        error = statistics.stdev(errors[name]) / len(errors[name]) ** 0.5
        assert abs(bias) < 3 * error, (name, bias, error)
        assert covered[name] >= 10, (name, covered)
