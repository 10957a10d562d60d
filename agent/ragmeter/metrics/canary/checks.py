"""Fact checks and calculation checks of a canary answer: patterns, forbidden phrases, numbers.

Patterns run in `regex`: `re` has no timeout, and a pattern that is quick on one answer may run for
hours on another. A check that ran out of time is unknown, not failed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from ragmeter.core.redaction_rules import LONG, compile_pattern
from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.metrics.abstention import abstains
from ragmeter.metrics.canary.searchable_answer import SearchableAnswer, number_values
from ragmeter.metrics.english import ENGLISH
from ragmeter.reasons import Reason
from ragmeter.trace import Calculation, FactCheck

if TYPE_CHECKING:
    import regex

_PATTERN_TIMEOUT_SECONDS = 0.5  # for all patterns of one answer; ordinary ones take microseconds
_MAX_PATTERN = 1_000  # characters
# Nested repeats. References may come from anyone, so compile time counts: this takes a millisecond.
_MAX_UNROLLED = 1_000


@dataclass(slots=True)
class FactCheckResult:
    """The share of passed checks, and the names (or numbers from 1) of failed and unknown ones."""

    value: float | NoScore
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def validate_pattern(text: str) -> regex.Pattern[str]:
    """Compile the pattern of a check.

    Raises:
        ValueError: It is too long, invalid or too expensive.
    """
    if len(text) > _MAX_PATTERN:
        raise ValueError(f"a pattern has at most {_MAX_PATTERN} characters")
    return compile_pattern(text, any_case=True, most=_MAX_UNROLLED)


@lru_cache(maxsize=256)
def _pattern(text: str) -> regex.Pattern[str] | None:
    try:
        return validate_pattern(text)
    except ValueError:
        return None


def _search(
    pattern: regex.Pattern[str] | None,
    answer: SearchableAnswer,
    until: float,
    monotonic: Callable[[], float],
) -> float | NoScore:
    if pattern is None:
        return NoScore(Reason.BAD_PATTERN)
    left = until - monotonic()
    if left <= 0:
        return NoScore(Reason.PATTERN_TIMEOUT)
    try:
        hit = pattern.search(answer.text, timeout=left, concurrent=len(answer.text) > LONG)
    except TimeoutError:
        return NoScore(Reason.PATTERN_TIMEOUT)
    return float(hit is not None)


def run_fact_checks(
    answer: SearchableAnswer,
    checks: Sequence[FactCheck],
    monotonic: Callable[[], float],
    seconds: float = _PATTERN_TIMEOUT_SECONDS,
) -> FactCheckResult:
    """Run fact checks (the fact score of zesty-assignment, whose checks are code).

    A check passes if the answer has all its patterns and none of its forbidden phrases. An empty
    check does not count. A check that failed stays failed if another pattern can't be applied. All
    patterns together get `seconds` by the clock `monotonic`.
    """
    # compiled before the clock runs: the first pattern of a process loads the module, too
    patterns = [[_pattern(text) for text in check.patterns] for check in checks]
    until = monotonic() + seconds
    result = FactCheckResult(NoScore(Reason.NO_CHECKS, applies=False))
    passed = 0
    reasons: list[NoScore] = []
    number = 0
    for at, check in enumerate(checks, 1):
        banned = [answer.holds(phrase) for phrase in check.forbidden]
        if not check.patterns and not any(one is not None for one in banned):
            continue
        number += 1
        name = check.name or str(at)
        if any(banned):
            result.failed.append(name)
            continue
        hits: list[float | NoScore] = []
        for pattern in patterns[at - 1]:
            hits.append(_search(pattern, answer, until, monotonic))
            if hits[-1] == 0.0:
                break
        unknown = [one for one in hits if isinstance(one, NoScore)]
        if 0.0 in hits:
            result.failed.append(name)
        elif unknown:
            result.unknown.append(name)
            reasons += unknown
        else:
            passed += 1
    if reasons:
        result.value = most_common_reason(reasons)
    elif number:
        result.value = passed / number
    return result


def _holds_number(number: float, numbers: Sequence[float], tolerance: float) -> bool:
    # the nearest of sorted numbers are the two around it
    at = bisect_left(numbers, number)
    # a canonical form may differ from the number in the last bits
    return any(
        abs(one - number) <= tolerance or math.isclose(one, number, rel_tol=1e-9)
        for one in numbers[max(at - 1, 0) : at + 1]
    )


def check_calculation(answer: SearchableAnswer, calculation: Calculation) -> float:
    """Return 1 if the answer has the result, else 0 (`is_correct` of zesty-assignment).

    An answer that says that the result can't be calculated gets 0, too.
    """
    if not _holds_number(
        calculation.result, sorted(number_values(answer.numbers)), calculation.tolerance
    ):
        return 0.0
    if any(answer.holds(phrase) for phrase in ENGLISH["calculation_refusals"]) or abstains(
        answer.text
    ):
        return 0.0
    return 1.0


# Two numbers with an operator between them, or the operation in a word. A minus or a slash needs
# space around it: 3-5 is a range, 5/6 may be a date. Gaps are bounded, so that a text of digits is
# scanned once.
_OPERATION = re.compile(
    r"\d[\d.,]{0,20}\s{0,3}[%)\]]?(?:\s{0,3}[x×*÷+=]\s{0,3}|\s{1,3}[−–/-]\s{1,3})[$€£¥(\[]?\s{0,3}\d"
    r"|\b(?:multipl(?:y|ied|ying|ication)|divid(?:e|ed|ing)|times|plus|minus|subtract(?:ed|ing)?"
    r"|sum of|added? to|product of)\b"
)


def check_calculation_shown(answer: SearchableAnswer) -> float:
    """Return 1 if the answer shows how it calculated (`has_calculation` of zesty-assignment)."""
    return float(_OPERATION.search(answer.text.lower()) is not None)


def check_calculation_steps(answer: SearchableAnswer, calculation: Calculation) -> float | NoScore:
    """Compute the share of intermediate numbers that the answer has.

    These are zesty-assignment's checks of base rate and factor.
    """
    if not calculation.steps:
        return NoScore(Reason.NO_STEPS, applies=False)
    numbers = sorted(number_values(answer.numbers))
    steps = calculation.steps
    return sum(_holds_number(step, numbers, calculation.tolerance) for step in steps) / len(steps)
