"""The streams benchmark, small, on answers made up here: its streams, detectors and tables."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from benchmarks import streams
from benchmarks.streams import Plan, compare
from benchmarks.streams_data import Swap, draw
from benchmarks.streams_methods import BUCKET, OURS, PLAIN
from benchmarks.streams_report import REPEATS, Row, report
from training.devdata import Floats

SWAP = Swap("made up", "good", "bad")
RNG = np.random.default_rng(3)
POOLS: dict[tuple[str, str, str], Floats] = {
    ("made up", "good", "label"): np.repeat([0.0, 1.0], [54, 6]),
    ("made up", "bad", "label"): np.repeat([0.0, 1.0], [24, 36]),
    ("made up", "good", "score"): 1 - RNG.beta(8, 2, 60),
    ("made up", "bad", "score"): 1 - RNG.beta(5, 4, 60),
}


def test_a_stream_changes_at_the_swap_and_not_before() -> None:
    good, bad = np.array([0.0, 0.25]), np.array([1.0])
    found = draw(good, bad, (20, 100, 300), (50, 90), "seed")
    assert found.x.shape == (20, 400)
    assert len(set(found.swap)) > 5
    for row, at in zip(found.x, found.swap, strict=True):
        assert 150 <= at <= 190
        assert set(row[:at]) == {0.0, 0.25}
        assert set(row[at:]) == {1.0}
    assert (draw(good, bad, (20, 100, 300), (50, 90), "seed").x == found.x).all()
    assert (draw(good, bad, (20, 100, 300), (50, 90), "other").x != found.x).any()


def test_answers_repeat_as_often_as_asked_and_the_mean_stays() -> None:
    pool = np.arange(1000.0)
    for repeats in (1.0, 5.0):
        x = draw(pool, pool, (1, 0, 50_000), (50_000, 50_000), "seed", repeats).x[0]
        assert 50_000 / (1 + (np.diff(x) != 0).sum()) == pytest.approx(repeats, rel=0.1)
        assert x.mean() == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize("signal", ["label", "score"])
def test_every_detector_finds_a_large_swap_and_the_promise_is_kept(signal: str) -> None:
    plan = Plan(nulls=2, length=10_000, swaps=5, within=2_000)
    rows = compare((SWAP, signal, 1.0), POOLS, plan)
    assert [r.detector for r in rows] == ["ours", "ours, fitted", *PLAIN]
    assert rows[0].threshold == 500  # buckets of twenty in 10,000 samples
    assert rows[0].false_alarms <= 0.5
    for r in rows:
        assert len(r.delays) == 5
        assert r.missed == 0
        assert 1 <= r.delay(0.5) <= r.delay(0.9) <= 600
        assert r.elsewhere is not None
    assert max(r.elsewhere or 0 for r in rows[2:]) > 10 * (rows[0].elsewhere or 0)


def test_an_alarm_is_not_raised_before_what_causes_it() -> None:
    x = np.zeros(3_000 + 7_200)
    x[::10] = 1.0
    x[8_200:] = 1.0
    for method, low, high in [*PLAIN.values(), (OURS["label"], 0.0, 500.0)]:
        found = method(x, 7_200)((low + high) / 3)
        assert found
        assert 8_200 < found[0] < 8_200 + 500
    assert OURS["label"](x, 7_200)(500.0)[0] % BUCKET == 0


def row(delays: list[int | None], detector: str, repeats: float = 1.0) -> Row:
    elsewhere = 3.0 if repeats == 1.0 else None
    return Row("A", "b", "c", "label", 0.1, 0.3, repeats, detector, 1.0, 0.5, elsewhere, delays)


def test_quantiles_count_what_was_missed() -> None:
    one = row([10, 20, None, 30, None], "ours")
    assert one.missed == 0.4
    assert one.delay(0.5) == 30
    assert one.delay(0.9) == math.inf


def test_the_tables_say_who_was_first_and_what_was_missed() -> None:
    lines = [
        [row([60, 60], "ours", r), row([40, None], "ours, fitted", r), row([20, 30], "KS", r)]
        for r in (1.0, REPEATS)
    ]
    text = report(lines, 2000)
    assert "| A, b to c, label 0.10 to 0.30 | 60 / 60 | 40 / – (50% missed) | 20 / 30 |" in text
    assert text.count("| fewest samples, median | 0 | 0 | 1 |") == 2
    assert text.count("| sooner than ours, median | 0 | 1 | 1 |") == 2
    assert text.count("| 3.00 | 3.00 | 3.00 |") == 1  # only where thresholds are of another order


def test_without_river_its_columns_are_left_out_with_the_reason() -> None:
    python, why = streams._river("/nowhere/python")
    assert python is None
    assert "/nowhere/python" in why
    python, why = streams._river(None)
    assert python == sys.executable or "river" in why
