from __future__ import annotations

import time

from ragmeter.core.score import NoScore
from ragmeter.metrics.canary.checks import (
    FactCheckResult,
    check_calculation,
    check_calculation_shown,
    check_calculation_steps,
    run_fact_checks,
)
from ragmeter.metrics.canary.searchable_answer import SearchableAnswer
from ragmeter.trace import Calculation, FactCheck

from tests.tables import each_row

YES = FactCheck(name="yes", patterns=[r"\byes\b"], forbidden=["no"])
RATE = FactCheck(patterns=[r"0\.305\s?%?", r"territory\s118"])
ENDLESS = r"(a|aa|aaa)+$"
SLOW = FactCheck(name="slow", patterns=[ENDLESS])


def checked(answer: str, *checks: FactCheck, seconds: float = 60) -> FactCheckResult:
    return run_fact_checks(SearchableAnswer(answer), checks, time.monotonic, seconds)


def test_every_pattern_must_match_and_no_forbidden_phrase_stand() -> None:
    found = checked("YES: Territory 118 changes by 0.305 %.", YES, RATE)
    assert found == FactCheckResult(1.0)
    assert checked("Yes, by 0.305%", YES, RATE) == FactCheckResult(0.5, failed=["2"])
    assert checked("Yes, or no. Territory 118: 0.305", YES, RATE) == FactCheckResult(
        0.5, failed=["yes"]
    )
    assert checked("", YES, RATE) == FactCheckResult(0.0, failed=["yes", "2"])
    assert checked("There is nothing.", FactCheck(forbidden=["no"])) == FactCheckResult(1.0)


def test_a_forbidden_phrase_is_words_and_not_letters() -> None:
    # zesty looks for "no" among letters, and so finds it in "known"
    assert checked("Yes, as is known.", YES).value == 1.0


def test_no_checks_no_score() -> None:
    none = FactCheckResult(NoScore("no_checks", applies=False))
    assert checked("x") == none
    assert checked("x", FactCheck(name="empty"), FactCheck(forbidden=["!"])) == none


def test_time_is_bounded_and_what_ran_out_of_it_is_unknown() -> None:
    answer = "a" * 5_000 + "b"
    before = time.process_time()
    found = checked(answer, SLOW, YES, seconds=0.05)
    assert time.process_time() - before < 2
    assert found == FactCheckResult(NoScore("pattern_timeout"), unknown=["slow", "yes"])
    # the time is that of all patterns together
    clock = iter([0.0, 40.0, 60.0])
    late = run_fact_checks(SearchableAnswer("yes"), [YES, YES], lambda: next(clock), 50.0)
    assert late == FactCheckResult(NoScore("pattern_timeout"), unknown=["yes"])


def test_a_check_that_failed_stays_failed_without_its_slow_pattern() -> None:
    answer = "a" * 5_000 + "b no"
    check = FactCheck(name="both", patterns=[ENDLESS], forbidden=["no"])
    assert checked(answer, check) == FactCheckResult(0.0, failed=["both"])
    check = FactCheck(name="both", patterns=["missing", ENDLESS])
    assert checked(answer, check) == FactCheckResult(0.0, failed=["both"])


@each_row("bad", ["(", "a*", "", "x" * 1001, "((a{50}){50}){2}", "(?P<a>"])
def test_a_pattern_that_is_none_leaves_the_score_unknown(bad: str) -> None:
    found = checked("yes", YES, FactCheck(name="bad", patterns=[bad]))
    assert found == FactCheckResult(NoScore("bad_pattern"), unknown=["bad"])


PREMIUM = Calculation(result=604, steps=[293, 2.061], tolerance=0)


@each_row(
    ("answer", "right"),
    [
        ("The premium is 293 × 2.061 = $604.", 1.0),
        ("It is $604.00 a year.", 1.0),
        ("It is $6,040.", 0.0),
        ("It is -$604.", 0.0),
        ("I cannot calculate it, but $604 was named.", 0.0),
        ("I'm sorry, but I do not have the factor for $604.", 0.0),
        ("A factor that is missing elsewhere: $604.", 1.0),
        ("", 0.0),
    ],
)
def test_calculations(answer: str, right: float) -> None:
    assert check_calculation(SearchableAnswer(answer), PREMIUM) == right


def test_the_way_to_the_result() -> None:
    assert check_calculation_steps(SearchableAnswer("293 × 2.061 = 604"), PREMIUM) == 1.0
    assert check_calculation_steps(SearchableAnswer("293 × 2.06 = 604"), PREMIUM) == 0.5
    assert check_calculation_steps(SearchableAnswer("604"), PREMIUM) == 0.0
    assert check_calculation_steps(SearchableAnswer("1"), Calculation(result=1)) == NoScore(
        "no_steps", applies=False
    )


def test_tolerance() -> None:
    near = Calculation(result=604, steps=[2.061], tolerance=0.5)
    assert check_calculation(SearchableAnswer("603.87"), near) == 1.0
    assert check_calculation(SearchableAnswer("603.4"), near) == 0.0
    assert (
        check_calculation(SearchableAnswer("0.30000000000000004"), Calculation(result=0.3)) == 1.0
    )


def test_the_nearest_number_counts_on_both_sides() -> None:
    steps = Calculation(result=1, steps=[1.0, 2.5, 4.0, -3.0], tolerance=0.25)
    assert check_calculation_steps(SearchableAnswer("0.5, 1.25, 2.2, 2.8, 3.75, -2"), steps) == 0.5


def test_many_steps_against_many_numbers() -> None:
    """Each step against each number would be 10^8 comparisons, half a minute."""
    reported = SearchableAnswer(" ".join(map(str, range(0, 20_000, 2))))
    many = Calculation(result=1, steps=[float(n) for n in range(20_000)])
    before = time.process_time()
    assert check_calculation_steps(reported, many) == 0.5
    assert time.process_time() - before < 5


@each_row(
    ("text", "shown"),
    [
        ("604 x 0.3 = 181", 1.0),
        ("Multiply the base rate by 3.", 1.0),
        ("$51 + $3 is $54", 1.0),
        ("604 - 51 is 553", 1.0),
        ("It is 604.", 0.0),
        ("Pages 3-5 of 2024-05-06, or 5/6.", 0.0),
    ],
)
def test_a_calculation_is_shown_by_an_operation(text: str, shown: float) -> None:
    assert check_calculation_shown(SearchableAnswer(text)) == shown
