"""`people+mini` of live traffic: the model scores a sample, and people label some of that."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.feedback import PEOPLE, Feedback
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.metrics.labelled import SORTED_BY
from ragmeter.metrics.merged_labels import GivenLabels, LabelProbability
from ragmeter.parts.labels.pool import LabelPool
from ragmeter.parts.labels.traces import ModelSample, RememberedTrace, ScorerLabels
from ragmeter.scoring.slow_tiers import SlowTiers
from ragmeter.trace import Trace
from ragmeter.windows.series import Estimate
from ragmeter.windows.windows import Windows

from tests.parts.labels.samples import part_of, send
from tests.traces import START, good
from tests.waiting import stop_agent

NAME = "people+mini"


def estimate_once(
    rng: random.Random, good: Sequence[bool], cheap: Sequence[float], rates: Sequence[float]
) -> Estimate:
    """Let the model score each trace at its rate, draw 30 of those, and label them."""
    pool = LabelPool(SamplingSettings(people=0.2), 1e9, rng)
    windows = Windows(["24h"], min_samples=1)
    windows.advance(0.0)
    samples: dict[str, ModelSample] = {}
    # the pool goes by a hash of the id, so that each run has ids of its own
    prefix = str(rng.random())
    for at, (value, rate) in enumerate(zip(cheap, rates, strict=True)):
        if rng.random() >= rate:
            continue
        trace_id = f"{prefix}-{at}"
        samples[trace_id] = sample = ModelSample(NAME, value, rate, rate)
        pending = ((SORTED_BY, NAME, sample.stratum, value),)
        size = ScoredTrace(trace_id, "bot", 0.0, "ok", [], rate, partial=True, pending=pending)
        windows.add(size, "bot")
        score = Score(SORTED_BY, "mini", ScoreState.SCORED, value, probability=rate)
        pool.offer(ScoredTrace(trace_id, "bot", 0.0, "ok", [score], partial=True))
    pool.draw("bot", 30)
    for drawn in pool.state("bot")[0]:
        label = float(good[int(drawn.trace_id.rpartition("-")[2])])
        given = LabelProbability(0.0, drawn.probability, drawn_here=True)
        labels = ScorerLabels(GivenLabels((), given), weighed=drawn.probability)
        results = samples[drawn.trace_id].results([(SORTED_BY, label)], labels)
        windows.add(ScoredTrace(drawn.trace_id, "bot", 0.0, "ok", results, partial=True), "bot")
    (series,) = windows.series("bot")
    assert series == (SORTED_BY, NAME), "and no help for what has helped"
    estimate = windows.estimate("bot", "", *series, "24h")
    assert estimate is not None
    return estimate


@pytest.mark.parametrize(
    ("usual", "doubtful"),
    [
        pytest.param(1.0, 1.0, marks=pytest.mark.slow),
        pytest.param(0.25, 0.25, marks=pytest.mark.slow),
        (0.15, 0.45),
        (0.05, 0.1),
    ],
)
def test_the_interval_covers_where_the_model_scores_a_part(usual: float, doubtful: float) -> None:
    rng = random.Random(11)
    cheap = [rng.random() for _ in range(1000)]
    good = [rng.random() < 0.1 + 0.85 * one for one in cheap]
    # what another score calls doubtful, which has to do with the truth, is drawn more often
    rates = [doubtful if rng.random() < 0.6 - 0.4 * yes else usual for yes in good]
    truth = sum(good) / len(good)
    runs, held, width, bias = 250, 0, 0.0, 0.0
    for _ in range(runs):
        one = estimate_once(rng, good, cheap, rates)
        held += one.lower <= truth <= one.upper
        width += (one.upper - one.lower) / runs
        bias += (one.value - truth) / runs
    assert held / runs > 0.925
    assert abs(bias) < 0.02
    assert width < (0.31 if usual > 0.1 else 0.36)


def test_a_small_sample_of_the_model_widens_the_interval_of_a_good_score() -> None:
    rng = random.Random(12)
    cheap = [rng.random() for _ in range(1000)]
    good = [rng.random() < 0.02 + 0.96 * (one > 0.45) for one in cheap]
    truth = sum(good) / len(good)
    runs = 200
    found = [estimate_once(rng, good, cheap, [0.05] * len(good)) for _ in range(runs)]
    # as if the sizes of the classes were known it would cover .925, and be .24 wide and not .35
    assert sum(one.lower <= truth <= one.upper for one in found) / runs > 0.95
    assert 0.3 < sum(one.upper - one.lower for one in found) / runs < 0.4


class Local:
    """A model that is surer of longer answers."""

    tier: Tier = "model"
    pairs: Sequence[MetricScorer] = (("grounding", "mini"),)

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        value = len(trace.answer or "") / 100
        return [Score("grounding", "mini", ScoreState.SCORED, value, fingerprint="f")]


@contextmanager
def running(folder: Path, **sampling: float) -> Iterator[EmbeddedAgent]:
    tree = {
        "state": {"path": str(folder / "s")},
        "sampling": sampling,
        "segments": ["model"],
    }
    agent = EmbeddedAgent(
        load_settings(environ={}, overrides=tree),
        [],
        live=False,
        tiers=lambda saved: SlowTiers({"model": Local()}),
        parts=PARTS,
    )
    agent.start()
    try:
        yield agent
    finally:
        stop_agent(agent, 5)


def feed(agent: EmbeddedAgent, numbers: range) -> None:
    agent.accept([good(n, model="a", answer="Click it." + "x" * (n % 80)) for n in numbers], "test")
    agent.wait_idle()


def say(agent: EmbeddedAgent, at: int, grounded: Mapping[str, tuple[bool, float]]) -> None:
    items = [
        Feedback.model_validate(
            {
                "trace_id": trace_id,
                "timestamp": START + at,
                "scorer": PEOPLE,
                "probability": probability,
                "verdict": {"grounded": yes, "answered": True},
            }
        )
        for trace_id, (yes, probability) in grounded.items()
    ]
    send(agent, items)


def estimate(agent: EmbeddedAgent, scorer: str, segment: str = "") -> Estimate | None:
    with agent.lock():
        return agent.windows.estimate("bot", segment, "grounding", scorer, "24h")


def size(agent: EmbeddedAgent) -> float:
    with agent.lock():
        cell = agent.windows.cell("bot", "", "grounding", NAME, "24h")
    assert cell is not None
    assert cell.strata is not None
    return sum(sums.size for sums in cell.strata.values()) / 2**24


def test_labels_of_a_running_agent(tmp_path: Path) -> None:
    with running(tmp_path, people=0.3, model=0.1) as agent:
        feed(agent, range(600))
        with agent.lock():
            pool = part_of(agent.states()[0]).pool
            _, _, waiting = pool.state("bot")
            pool.draw("bot", 30)
            drawn, _, _ = pool.state("bot")
        # the model scores at least what people are asked about, and nothing else is asked
        assert 120 < waiting < 240
        assert len({round(one.probability, 9) for one in drawn}) == 1
        assert size(agent) == pytest.approx(600, rel=0.15)
        labels = {
            one.trace_id: (number % 3 > 0, one.probability) for number, one in enumerate(drawn)
        }
        say(agent, 1, labels)
        first = estimate(agent, NAME)
        assert first is not None
        assert first.samples == 30
        assert 0.4 < first.lower < first.value < first.upper < 0.95
        assert estimate(agent, NAME, "model=a") == first
        plain = estimate(agent, "people")
        assert plain is not None
        assert plain.samples == 30
        # the same labels again change nothing, corrected ones take their place
        say(agent, 2, labels)
        assert estimate(agent, NAME) == first
        say(agent, 3, {one: (True, p) for one, (_, p) in labels.items()})
        corrected = estimate(agent, NAME)
        assert corrected is not None
        assert (corrected.value, corrected.samples) == (1.0, 30)
        assert size(agent) == pytest.approx(600, rel=0.15), "labels move no sizes"
    with running(tmp_path, people=0.3, model=0.1) as agent:  # it is all in the state
        assert estimate(agent, NAME) == corrected
        say(agent, 4, labels)
        assert estimate(agent, NAME) == first


def test_a_label_that_comes_before_the_score_counts_once_it_has_come(tmp_path: Path) -> None:
    with running(tmp_path, people=0.001, model=1) as agent:
        say(agent, 1, {f"t{n}": (n > 1, 0.5) for n in range(8)})
        feed(agent, range(20))
        found = estimate(agent, NAME)
        assert found is not None
        assert found.samples == 8
        assert size(agent) == pytest.approx(20)


def test_each_label_weighs_by_the_draw_that_it_is_of(tmp_path: Path) -> None:
    scored_at, filed = 0.5, 0.2

    def weight(agent: EmbeddedAgent) -> float:
        with agent.lock():
            cell = agent.windows.cell("bot", "", "grounding", NAME, "24h")
        assert cell is not None
        assert cell.strata is not None
        return sum(sums.w for sums in cell.strata.values()) / 2**24

    with running(tmp_path, people=scored_at, model=0.1) as agent:
        feed(agent, range(100))
        with agent.lock():
            pool = part_of(agent.states()[0]).pool
            entered = pool.keys()
            waiting = sorted(trace_id for _, trace_id in entered)
        # a file knows nothing of the model, also where the trace could have been drawn here
        say(agent, 1, dict.fromkeys(waiting[:4], (True, filed)))
        assert weight(agent) == pytest.approx(4 / (filed * scored_at))
        with agent.lock():
            pool.draw("bot", 10)
            drawn, _, _ = pool.state("bot")
        (probability,) = {one.probability for one in drawn}
        say(agent, 2, {one.trace_id: (True, probability) for one in drawn})
        both = 4 / (filed * scored_at) + 10 / probability
        assert weight(agent) == pytest.approx(both)
        # a trace of both counts once, by the later label
        say(agent, 3, {drawn[0].trace_id: (False, filed)})
        say(agent, 1, {drawn[1].trace_id: (False, filed)})
        moved = 1 / (filed * scored_at) - 1 / probability
        assert weight(agent) == pytest.approx(both + moved)
        found = estimate(agent, NAME)
        assert found is not None
        assert found.samples == 14


def test_a_row_of_a_trace_keeps_the_score() -> None:
    trace = RememberedTrace("t", "bot", "bot", (), 0.0, 1.0, None, cheap={"grounding": 0.5})
    trace.sample = ModelSample(NAME, 0.25, 0.1, 1.0)
    rows = TypeAdapter(RememberedTrace)
    assert rows.validate_json(rows.dump_json(trace)) == trace
    assert trace.sample.stratum == "sample/14", "rounded down: 2 ** (-14 / 4) is .088"


def test_no_model_no_change(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "state": {"path": str(tmp_path / "s")},
        "sampling": {"people": 1},
        "models": {"cpu_share": 0},
    }
    agent = EmbeddedAgent(load_settings(environ={}, overrides=tree), [], live=False, parts=PARTS)
    agent.start()
    try:
        feed(agent, range(20))
        with agent.lock():
            assert part_of(agent.states()[0]).pool.state("bot")[2] == 20
    finally:
        stop_agent(agent, 5)
