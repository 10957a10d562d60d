"""A run says what the agent's gauges would say of the same traces, and what was not scored."""

from __future__ import annotations

import random

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.report.run import ScoredRun
from ragmeter.windows.windows import Windows

from tests.offline.report.runs import run_of, series_of
from tests.scored import line_of, result


@pytest.mark.parametrize(("metric", "whole"), [("grounding", False), ("answered", True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_numbers_are_those_of_the_windows(metric: str, whole: bool, weighted: bool) -> None:
    rng = random.Random(4)
    run = ScoredRun("a")
    windows = Windows(("24h",), min_samples=1)
    for number in range(80):
        value = float(rng.random() < 0.7) if whole else rng.random()
        pi = rng.choice((0.1, 0.5, 1.0)) if weighted else 1.0
        for target in (run, windows):
            score = Score(metric, "builtin", ScoreState.SCORED, value, probability=pi)
            if number % 9 == 0:
                score = Score(metric, "builtin", ScoreState.UNSCORED, reason="no_text")
            # days apart: a run has no window that could close
            scored = ScoredTrace(f"t{number}", "bot", 1e9 + number, "ok", [score])
            if isinstance(target, ScoredRun):
                target.add(scored._replace(timestamp=1e9 + 86400.0 * number), None)
            else:
                target.add(scored, "bot")
    assert series_of(run, metric).estimate == windows.estimate("bot", "", metric, "builtin", "24h")


def test_unscored_is_counted_with_its_reason_and_is_no_zero() -> None:
    found = series_of(run_of([0.8, None, 0.6, None] * 10))
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(0.7)
    assert (found.states["scored"], found.states["unscored"]) == (20, 20)
    assert found.reasons["unscored"] == {"judge_timeout": 20}
    assert found.estimate.unscored == pytest.approx(0.5)
    # it may all be the worst or the best; what was scored alone says more
    assert found.plain is not None
    assert found.estimate.lower < found.plain.lower < found.plain.upper < found.estimate.upper
    assert found.box is not None
    assert (found.box.n, found.box.low) == (20, 0.6)


def test_nothing_scored_has_no_number() -> None:
    found = series_of(run_of([None, None]))
    assert (found.estimate, found.plain, found.box, found.worst) == (None, None, None, ())


def test_worst_traces() -> None:
    found = series_of(run_of([0.3, 0.1, 1.0, 0.2]))
    assert [(w.trace_id, w.value) for w in found.worst] == [("t1", 0.1), ("t3", 0.2), ("t0", 0.3)]
    errors = series_of(run_of([0.0, 1.0, 0.0], "error"), "error")
    assert [w.trace_id for w in errors.worst] == ["t1"]
    assert series_of(run_of([3.0, 9.0], "input_tokens"), "input_tokens").worst == ()
    # among equals the arrival decides nothing
    one = series_of(run_of({f"x{n}": 0.0 for n in range(50)}))
    two = series_of(run_of({f"x{n}": 0.0 for n in reversed(range(50))}))
    assert [w.trace_id for w in one.worst] == [w.trace_id for w in two.worst]


def test_versions_of_a_judge_are_series_of_their_own() -> None:
    run = ScoredRun("a")
    for number in range(60):
        mark = "old" if number < 30 else "new"
        score = result("relevance", 1.0 + (mark == "new"), scorer="umbrela", fingerprint=mark)
        run.add(line_of(number, score).trace, None)
    failed = {"scorer": "umbrela", "state": "unscored", "reason": "judge_timeout"}
    run.add(line_of(60, {"metric": "relevance", **failed}).trace, None)
    found = {s.fingerprint: s for s in run.series(5)}
    assert set(found) == {"old", "new"}
    values = {mark: s.estimate.value for mark, s in found.items() if s.estimate}
    assert values == {"old": 1.0, "new": 2.0}
    # what has no version counts with the current one
    assert found["new"].reasons["unscored"] == {"judge_timeout": 1}
    assert [len(found[mark].scores) for mark in ("old", "new")] == [30, 30]


def test_strata_are_honoured() -> None:
    run = ScoredRun("a")
    for number in range(400):
        low = number % 4 == 0
        drawn = low or number % 8 == 1
        shared = {
            "scorer": "umbrela",
            "stratum": "low" if low else "rest",
            "cheap": 0.5,
            "probability": 1.0 if low else 0.1,
        }
        score = (
            result("relevance", 0.0 if low else 3.0, **shared)
            if drawn
            else {"metric": "relevance", "state": "sampled_out", **shared}
        )
        run.add(line_of(number, score).trace, None)
    found = series_of(run, "relevance")
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(0.75 * 3.0)
    assert found.states["sampled_out"] == 250
    assert found.weighted


def test_reasons_and_strata_from_a_file_are_bounded() -> None:
    run = ScoredRun("a")
    for number in range(200):
        score = {"metric": "grounding", "scorer": "builtin", "state": "unscored"}
        run.add(
            line_of(number, {**score, "reason": f"r{number}", "stratum": f"s{number}"}).trace, None
        )
    found = series_of(run)
    assert len(found.reasons["unscored"]) <= 51
    assert sum(found.reasons["unscored"].values()) == 200
    assert sum(found.states.values()) == 200


def test_order_and_latency() -> None:
    run = ScoredRun("a")
    for number in range(40):
        scores = [result("error", 0.0), result("grounding", 0.5)]
        run.add(line_of(number, *scores, timings={"total": 1.0 + number}).trace, None)
    assert [s.metric for s in run.series(5)] == ["grounding", "error"]
    ((stage, quantiles),) = run.latency()
    assert stage == "total"
    assert quantiles[0].value == pytest.approx(20.5, rel=0.05)
    assert metric_specs()["grounding"] is next(run.series(1)).spec
