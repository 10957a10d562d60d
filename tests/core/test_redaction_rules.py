"""Rules of one's own: refused where they are none, and stopped where they would run on."""

from __future__ import annotations

import time

import pytest
from ragmeter.core.redaction_rules import (
    _MAX_TIMEOUTS,
    REST_SECONDS,
    RedactionError,
    RedactionRule,
    compile_pattern,
)

from tests.tables import each_row

ENDLESS = (r"(?i)(x+x+)+y", "x" * 5000)


@each_row("pattern", ["(", "[a", "a**", "(?P<x", r"\p{Nope}", "*", "x*", "", "^", "a|"])
def test_what_is_no_pattern_or_matches_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"no pattern|everywhere"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["((a{99}){99}){99}", "(?:(?:x{1,400})){1,400}", "(a{999999})"])
def test_what_would_take_all_memory_to_compile_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="multiply"):  # said before it is compiled
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(?:\d{4}[ -]?){3}\d{4}", r"[{}]{3}\(\){4}", r"KD-\d{1,10}", r"(?i)acc(ou)?nt\s\w+"],
)
def test_ordinary_ones_are_not(pattern: str) -> None:
    assert compile_pattern(pattern)


def test_a_search_that_runs_on_is_stopped() -> None:
    rule = RedactionRule("endless", ENDLESS[0], None, 0.05)
    start = time.process_time()
    with pytest.raises(RedactionError) as caught:
        rule.spans(ENDLESS[1])
    assert (caught.value.rule, caught.value.reason) == ("endless", "timeout")
    assert time.process_time() - start < 2


def test_a_rule_that_often_runs_on_is_left_alone_for_a_while() -> None:
    now = [0.0]
    rule = RedactionRule("endless", ENDLESS[0], None, 0.02, lambda: now[0])
    for _ in range(_MAX_TIMEOUTS):
        with pytest.raises(RedactionError, match="timeout"):
            rule.spans(ENDLESS[1])
    with pytest.raises(
        RedactionError, match="resting"
    ):  # nothing is tried, and nothing let through
        rule.spans("xxy")
    now[0] += REST_SECONDS + 1
    assert rule.spans("xxy") == [(0, 3)]


def test_a_check_that_breaks_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RedactionRule("credit_card", None, None, 1.0)

    def broken(text: str, start: int, end: int) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(rule, "_check", broken)
    with pytest.raises(RedactionError, match="error"):
        rule.spans("4111111111111111")
