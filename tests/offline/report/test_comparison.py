"""Two runs: paired where they answered the same questions, weights honoured, or why there is no
test."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ragmeter.offline.report.comparison import RunComparison, compare_runs, describe_difference
from ragmeter.offline.report.run import ScoredRun

from tests.offline.report.recorded import recorded
from tests.offline.report.runs import run_of


def against(first: ScoredRun, *others: ScoredRun, same_draw: bool = True) -> list[RunComparison]:
    runs = [(run, list(run.series(5))) for run in (first, *others)]
    return compare_runs(runs, same_draw, seed=0)


def test_same_ids_are_paired() -> None:
    (found,) = against(
        run_of([0.1, 0.2, 0.3, 0.4]), run_of({"t0": 0.3, "t1": 0.3, "t2": 0.4, "t3": 0.3, "x": 0.9})
    )
    assert (found.method, found.pairs) == ("paired", 4)
    assert found.difference == pytest.approx(0.075)
    # of 2, 1, 1 and 1 the sum was 3: so much have the turn without any (5) and those of a single 1
    # (3, 3, 3), and as many of the other sign
    assert found.p == pytest.approx(8 / 16)


def test_other_ids_are_not() -> None:
    (found,) = against(run_of({"a": 0.0, "b": 1.0}, "answered"), run_of([1, 1, 1], "answered"))
    assert (found.method, found.pairs) == ("unpaired", 0)
    assert found.difference == pytest.approx(0.5)


def test_a_few_ids_in_common_make_no_pairs() -> None:
    first = {f"a{n}": n / 10 for n in range(8)} | {"x": 0.5, "y": 0.4}
    second = {f"b{n}": n / 10 for n in range(8)} | {"x": 0.6, "y": 0.6}
    (found,) = against(run_of(first), run_of(second))
    assert (found.method, found.pairs) == ("unpaired", 2)


def test_questions_asked_several_times_have_partners() -> None:
    first, second = run_of([n / 20 for n in range(12)]), run_of([n / 20 + 0.1 for n in range(12)])
    for run in (first, second):
        run.keys = [f"q{n // 3}" for n in range(12)]
    (found,) = against(first, second)
    assert (found.method, found.pairs) == ("paired", 4)
    assert found.difference == pytest.approx(0.1)
    first.keys = [f"q{n // 2}" for n in range(12)]  # four of the twelve are of q0 and q1
    second.keys = [f"q{n}" if n < 2 else f"other{n}" for n in range(12)]
    (found,) = against(first, second)
    assert (found.method, found.pairs) == ("unpaired", 2)


def test_pairing_sees_what_two_samples_cannot() -> None:
    base = [n / 20 for n in range(20)]
    first, second = run_of(base), run_of([value + 0.03 for value in base])
    (paired,) = against(first, second)
    (unpaired,) = against(first, run_of({f"u{n}": v + 0.03 for n, v in enumerate(base)}))
    assert (paired.p or 1) < 0.001 < 0.5 < (unpaired.p or 0)
    assert describe_difference(paired, "higher") == "better"
    assert describe_difference(paired, "lower") == "worse"
    assert describe_difference(paired, None) == "higher"
    assert describe_difference(unpaired, "higher") == "no difference shown"


@pytest.mark.parametrize(("n", "broken"), [(12, 0.1), (24, 0.05), (100, 0.05)])
def test_answers_that_rarely_break_are_covered(n: int, broken: float) -> None:
    """The t interval covers .71 to .88 here: it is sure where hardly an answer broke."""
    rng = random.Random(n)
    covered = 0
    first = run_of({f"q{i}": float(i > 0) for i in range(n)}, "answered")
    for _ in range(200):
        second = {f"q{i}": float(i > 0 and rng.random() >= broken) for i in range(n)}
        (found,) = against(first, run_of(second | {"another": 1.0}, "answered"))
        assert found.method == "paired"
        assert found.lower is not None
        assert found.upper is not None
        covered += found.lower <= -broken * (n - 1) / n <= found.upper
    assert covered > 0.93 * 200


def test_pairs_keep_their_weights() -> None:
    # one pair stands for nine traces: mean difference (9 * .4 - .2) / 10
    first = run_of([0.5, 0.5], probabilities=[1 / 9, 1.0])
    (found,) = against(first, run_of([0.9, 0.3], probabilities=[1 / 9, 1.0]))
    assert found.method == "paired"
    assert found.difference == pytest.approx(0.34)
    # another draw for each: 1/9 * 1/9 and 1
    (found,) = against(first, run_of([0.9, 0.3], probabilities=[1 / 9, 1.0]), same_draw=False)
    assert found.difference == pytest.approx((81 * 0.4 - 0.2) / 82)


def test_unpaired_weights_are_honoured() -> None:
    light = run_of({f"a{n}": 1.0 for n in range(50)} | {f"b{n}": 0.0 for n in range(50)})
    values = {f"c{n}": 1.0 for n in range(50)} | {f"d{n}": 0.0 for n in range(50)}
    heavy = run_of(values, probabilities=[0.25] * 50 + [1.0] * 50)
    (found,) = against(light, heavy)
    assert found.difference == pytest.approx(0.8 - 0.5)


def test_a_question_asked_twice_is_one_pair() -> None:
    first, second = run_of([0.2, 0.6, 0.4]), run_of([0.5, 0.5, 0.9])
    for run in (first, second):
        run.keys[:] = ["q1", "q1", "q2"]
    (found,) = against(first, second)
    assert (found.method, found.pairs) == ("paired", 2)
    assert found.difference == pytest.approx(((0.5 - 0.4) + (0.9 - 0.4)) / 2)


@pytest.mark.parametrize("case", recorded("welch"))
def test_many_scores_like_welch(case: dict[str, Any]) -> None:
    first = run_of({f"a{n}": value for n, value in enumerate(case["first"])})
    second = run_of({f"b{n}": value for n, value in enumerate(case["second"])})
    (found,) = against(first, second)
    # the interval is a little wider, for scores that a sample of this size may lack
    assert found.lower is not None
    assert found.upper is not None
    half = (case["interval"][1] - case["interval"][0]) / 2
    assert half <= (found.upper - found.lower) / 2 < 1.1 * half
    assert found.p == pytest.approx(case["p"], abs=0.03)


def test_nothing_to_test() -> None:
    (same,) = against(run_of([0.0, 0.0], "error"), run_of([0.0, 0.0], "error"))
    assert (same.method, same.p, same.adjusted) == ("constant", None, None)
    (alike,) = against(run_of([0.1, 0.7]), run_of([0.1, 0.7]))
    assert (alike.method, alike.p) == ("constant", None)
    (missing,) = against(run_of([0.1, 0.7]), run_of([None, None]))
    assert missing.method == "nothing"
    judge: dict[str, Any] = {"scorer": "umbrela"}
    (other,) = against(
        run_of([1, 2, 0], "relevance", fingerprint="aa", **judge),
        run_of([1, 0, 0], "relevance", fingerprint="bb", **judge),
    )
    assert other.method == "other_instrument"
    assert [describe_difference(item, "higher") for item in (same, missing, other)] == [
        "always the same",
        "not scored in both",
        "another instrument",
    ]


def test_all_tests_are_adjusted_together() -> None:
    first = run_of([0.0] * 12)
    lifted, mixed = run_of([0.5] * 12), run_of([0.0] * 6 + [0.5] * 6)
    found = against(first, lifted, mixed)
    assert [item.run for item in found] == [1, 2]
    assert [item.p for item in found] == [2 / 2**12, 2 / 2**6]
    assert [item.adjusted for item in found] == [4 / 2**12, 2 / 2**6]
