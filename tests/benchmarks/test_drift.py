"""The drift benchmark, small: it runs, keeps the promise, and its streams are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift import H, chart, cost, ours_mean, ours_shares
from benchmarks.drift_streams import DAY, NULLS, minutes, null, shifted


@pytest.mark.parametrize("kind", ["rate, bursts of 20", "score"])
def test_days_without_drift_have_hardly_an_alarm_where_a_chart_has_many(kind: str) -> None:
    m, learn, slots = null(kind, 1, 3)
    assert len(ours_mean(m, learn, slots, H)) <= 1
    assert len(chart(m, learn, slots, 3.0)) > 3
    if kind == "score":
        assert len(ours_shares(m, learn, slots, H)) <= 1


def test_shifts_are_found_in_minutes() -> None:
    m, learn = shifted("5 to 15 %", 1, 60, 90)
    assert 1 <= ours_mean(m, learn, 1, H)[0] - learn - 60 <= 40
    m, learn = shifted("spread only", 1, 60, 90)
    assert 1 <= ours_shares(m, learn, 1, H)[0] - learn - 60 <= 40


def test_streams_have_the_mean_that_they_say() -> None:
    for kind in NULLS:
        m, learn, slots = null(kind, 2, 1, rate=0.3)
        assert len(m.n) == learn + DAY
        expected = 0.005 if "0.5" in kind else 0.05 if kind.startswith("rate") else 0.15
        assert m.total.sum() / m.n.sum() == pytest.approx(expected, rel=0.25)
        assert m.cells.sum() == m.n.sum()
        assert slots in (1, 168)


def test_minutes_are_sums_by_minute() -> None:
    x, index = np.array([0.0, 1.0, 0.5]), np.array([0, 0, 2])
    m = minutes(x, index, 3, [0.25, 0.75])
    assert m.n.tolist() == [2, 0, 1]
    assert m.total.tolist() == [1, 0, 0.5]
    assert m.squares.tolist() == [1, 0, 0.25]
    assert m.cells[0, :3].tolist() == [1, 0, 1]


def test_the_cost_is_measured_while_detectors_run() -> None:
    found = cost(0.3, hours=2.3)
    assert found["streams"] >= 20
    assert 0 < found["advance_us_per_trace"] < 20_000
    assert found["state_bytes_per_stream"] < 30_000
