"""Histograms of scores per bucket."""

from __future__ import annotations

import json

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.drift.score_histograms import MAX_OPEN_BUCKETS, SCORE_CELLS, ScoreHistograms

from tests.parts.drift.fakes import SPECS


def trace(at: float, *scores: Score) -> ScoredTrace:
    return ScoredTrace("t", "bot", at, "ok", list(scores))


def score(value: float | None, metric: str = "grounding", p: float = 1.0) -> Score:
    state = ScoreState.UNSCORED if value is None else ScoreState.SCORED
    return Score(metric, "builtin", state, value, probability=p)


def test_scores_are_counted_by_cell_with_their_weight_and_taken_once() -> None:
    cells = ScoreHistograms(SPECS)
    cells.add([trace(5, score(0.0)), trace(15, score(1.0, p=0.5)), trace(25, score(0.5))])
    counts = cells.take("bot", "grounding", "builtin", 60, 0)
    assert counts is not None
    assert (counts[0], counts[SCORE_CELLS - 1], counts[SCORE_CELLS // 2]) == (1, 2, 1)
    assert list(counts[SCORE_CELLS:]) == [4, 6]
    assert cells.take("bot", "grounding", "builtin", 60, 0) is None
    assert cells.edge("grounding", 16) == 0.25


@pytest.mark.parametrize(
    "one", [score(None), score(float("nan")), score(7.0), score(1.0, "error"), score(1.0, "tokens")]
)
def test_what_has_no_place_is_left_out(one: Score) -> None:
    cells = ScoreHistograms(SPECS)
    cells.add([trace(5, one)])
    assert cells.take("bot", one.metric, "builtin", 60, 0) is None


def test_buckets_are_bounded_forgotten_and_saved() -> None:
    cells = ScoreHistograms(SPECS)
    cells.add([trace(i * 10.0, score(0.5)) for i in range(MAX_OPEN_BUCKETS + 20)])
    assert len(cells.dump()) == MAX_OPEN_BUCKETS
    cells.forget("bot", 1000.0)
    assert len(cells.dump()) == 10
    other = ScoreHistograms(SPECS)
    other.load(json.loads(json.dumps(cells.dump())))
    assert other.dump() == cells.dump()
    assert other.take("bot", "grounding", "builtin", 10, 1000.0) is not None
