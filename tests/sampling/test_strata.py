"""Which stratum a trace belongs to, and that drawing by strata bends no estimate."""

from __future__ import annotations

import random

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.arithmetic import VALUE_ONE
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import (
    RATIOS,
    REST_STRATUM,
    Sampler,
    StratumClassifier,
    drawn_stratum,
)
from ragmeter.scoring.scorer import Scorer, complete_results, summarise_trace
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import stratum_key
from ragmeter.windows.windows import Windows

from tests.tables import each_row
from tests.traces import START, make_trace

PAIRS: tuple[MetricScorer, ...] = (("answered", "judge"), ("citation_f1", "judge"))
DAY = 86400.0


def sampling(**values: object) -> SamplingSettings:
    return load_settings(environ={}, overrides={"sampling": values}).sampling


def builtin(metric: str, value: float | None) -> Score:
    state = ScoreState.NOT_APPLICABLE if value is None else ScoreState.SCORED
    return Score(metric, "builtin", state, value)


CONTROL = SamplingControl(
    1,
    low={"bot": {"grounding": 0.4}},
    first={"bot": {"": START - DAY, "model=old": START - DAY, "model=young": START - 60}},
    rare={"bot": ["tenant=small"]},
)


@each_row(
    ("trace", "grounding", "name"),
    [
        ({}, 0.9, "rest"),
        ({}, None, "rest"),
        ({}, 0.4, "rest"),
        ({}, 0.39, "low"),
        ({"status": "timeout"}, 0.1, "error"),
        ({"answer": " "}, 0.9, "error"),
        ({"model": "old"}, 0.9, "rest"),
        ({"model": "young"}, 0.1, "new"),
        ({"model": "never seen"}, 0.9, "new"),
        ({"service": "unknown", "model": "x"}, 0.1, "rest"),
        ({"tags": {"tenant": "small"}}, 0.9, "rare"),
        ({"tags": {"tenant": "large"}}, 0.9, "rest"),
        ({"tags": {"other": "small"}}, 0.9, "rest"),
    ],
)
def test_a_trace_belongs_to_the_first_stratum_that_fits(
    trace: dict[str, object], grounding: float | None, name: str
) -> None:
    strata = StratumClassifier(["tenant"], CONTROL)
    found = strata.classify(make_trace(**trace), [builtin("grounding", grounding)], START)  # type: ignore[arg-type]
    assert found.name == name
    assert found.ratio == {"rest": 1, "low": 2}.get(name, 3)


def test_without_a_record_only_errors_stand_apart() -> None:
    strata = StratumClassifier(["tenant"])
    low = [builtin("grounding", 0.0)]
    assert (
        strata.classify(make_trace(model="x", tags={"tenant": "small"}), low, START) == REST_STRATUM
    )
    strata.apply_control(CONTROL)
    assert strata.classify(make_trace(), low, START).name == "low"


def test_a_ratio_is_from_1_to_5() -> None:
    assert all(1 <= ratio <= 5 for ratio in RATIOS.values())


def test_every_metric_of_a_tier_scores_the_same_traces_with_one_stratum() -> None:
    settings = sampling(judge=0.2)
    scorer = Scorer(
        sampler=Sampler(settings),
        tiers={"judge": PAIRS},
        strata=StratumClassifier((), CONTROL),
    )
    for n in range(200):
        found = scorer.score(make_trace(n, status="error" if n % 3 == 0 else "ok"))
        notified = [score for score in found.trace.results if score.scorer == "judge"]
        assert len(notified) == (0 if found.draws else 2)
        assert len(found.trace.pending) == (2 if found.draws else 0)
        (drawn,) = {draw.stratum for draw in found.draws.values()} | {
            one.stratum for one in notified
        }
        name = "error:1" if n % 3 == 0 else drawn
        assert name in ("error:1", "low:1", "rest:2")
        assert drawn == name
        for draw in found.draws.values():
            assert draw.probability == pytest.approx(0.2 if name == "rest:2" else 0.6)
        for score in notified:
            assert score.cheap == found.cheap.get(score.metric)


def test_what_is_shed_keeps_its_stratum() -> None:
    settings = sampling(judge=1.0)
    scorer = Scorer(sampler=Sampler(settings), tiers={"judge": PAIRS})
    found = scorer.score(make_trace(sampling={"probability": 0.5}))
    found = scorer.shed(found, "judge")
    assert (found.draws, found.trace.pending) == ({}, ())
    last = found.trace.results[-2:]
    assert {(s.state, s.stratum, s.probability) for s in last} == {
        (ScoreState.SHED, "rest:0/4", 0.5)
    }


def run(change: bool, over: float = 3.0) -> tuple[list[float], float, Windows]:
    """An hour in which quality falls; with `change` the rate is raised tenfold in the middle. The
    estimates of the hour after each quarter, and the truth."""
    rng = random.Random(5)
    sampler = Sampler(sampling(judge=0.05))
    strata = StratumClassifier((), CONTROL, ratios={**RATIOS, "low": over})
    windows = Windows(specs=metric_specs())
    truth, notified = [], []
    for n in range(12_000):
        if n == 6000 and change:
            sampler.update(sampling(judge=0.5))
        good = rng.random() < (0.95 if n < 6000 else 0.75)
        truth.append(good)
        cheap = rng.betavariate(8, 2) if good else rng.betavariate(3, 5)
        trace = make_trace(n, timestamp=START + n * 0.3)
        scores = [builtin("grounding", cheap), builtin("answered", cheap)]
        stratum = strata.classify(trace, scores, START)
        draw = sampler.draw(trace, "judge", stratum.ratio)
        state = ScoreState.SCORED if draw.taken else ScoreState.SAMPLED_OUT
        value = float(good) if draw.taken else None
        judged = [Score("answered", "judge", state, value)]
        found = complete_results(
            judged,
            PAIRS[:1],
            draw.probability,
            stratum=stratum_key(drawn_stratum(stratum.name, draw.probability), cheap),
            cheap={"answered": cheap},
        )
        windows.add(summarise_trace(trace, found), "bot")
        if n % 3000 == 2999:
            estimate = windows.estimate("bot", "", "answered", "judge", "1h")
            assert estimate is not None
            assert estimate.lower < sum(truth) / len(truth) < estimate.upper
            notified.append(estimate.value)
    return notified, sum(truth) / len(truth), windows


def test_a_rate_changed_at_run_time_does_not_move_the_estimate() -> None:
    for change in (False, True):
        notified, truth, windows = run(change)
        assert abs(notified[-1] - truth) < 0.02
    cell = windows.cell("bot", "", "answered", "judge", "1h")
    assert cell is not None
    plain = sum(sums.y for sums in cell.sums().values()) / VALUE_ONE
    assert plain / cell.scored < truth - 0.08  # what a mean of the judged would have said


def test_oversampling_bends_neither_estimate() -> None:
    notified, truth, windows = run(change=False, over=5)
    assert abs(notified[-1] - truth) < 0.03
    plain = windows.estimate("bot", "", "answered", "judge", "1h")
    cell = windows.cell("bot", "", "answered", "judge", "1h")
    assert plain is not None
    assert cell is not None
    helped = estimate_interval(cell, 0.0, 1.0, assisted=True)
    assert abs(helped.value - truth) < 0.03
    assert helped.upper - helped.lower < 1.2 * (plain.upper - plain.lower)
    assert abs(helped.value - truth) < abs(plain.value - truth)
