from __future__ import annotations

import math

import pytest

from benchmarks.batching import kappa, main, report
from tests.scorers.judge.stub_process import stub_judge


def test_kappa_is_cohens() -> None:
    # Cohen (1960): 2 x 2 with 20, 5, 10, 15: observed .7, by chance .5
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([(1, 1), (0, 0)]) == 1
    assert kappa([(2, 2)] * 3) == 1
    assert kappa([(0, 1), (1, 0)]) == -1
    assert math.isnan(kappa([]))


def test_what_has_no_grade_is_left_out() -> None:
    assert report("x", [1, None, 3], [1, 2, 2]).startswith("| x | 2 |")


def test_it_runs_against_a_judge(capsys: pytest.CaptureFixture[str]) -> None:
    with stub_judge() as stub:
        main(["--base-url", stub.base_url, "--model", "m", "--limit", "10"])
    text = capsys.readouterr().out
    assert "| alone, twice |" in text
    assert "1.000 | 1.000 | +0.000" in text  # the stub answers by content
    assert "alone and 5 in a call" in text
