"""Fact checks and calculation checks of a canary answer: patterns, forbidden phrases, numbers.

Patterns are `regex`, not `re`: that one can't be stopped, and a pattern that is innocent on one
answer may run for hours on another. A check that ran out of time is unknown, not failed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from ragmeter.core.redaction_rules import LONG, compile_pattern
from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.metrics.abstention import abstains
from ragmeter.metrics.canary.answers import SearchableAnswer, number_values
from ragmeter.trace import Calculation, FactCheck

if TYPE_CHECKING:
    import regex

_PATTERN_TIMEOUT_SECONDS = 0.5  # for all patterns of one answer; ordinary ones take microseconds
_MAX_PATTERN = 1_000  # characters
_MAX_UNROLLED = 1_000  # repeats within one another; a reference may come from anyone, so compile
# times count: with as many a pattern takes a millisecond

_CAN_NOT = (
    *("cannot calculate", "cannot compute", "cannot determine", "can't calculate"),
    *("can't compute", "can't determine", "not possible to calculate", "not possible to compute"),
    *("unable to calculate", "unable to compute", "unable to determine"),
    *("do not have enough", "don't have enough", "not enough information"),
)
"""That a calculation can't be done, as zesty knows it, but for words that an answer with a result
has too ("missing", "not provided")."""


@dataclass(slots=True)
class FactCheckResult:
    """`value`: checks passed / checks. `failed` and `unknown` are names of checks, or their
    numbers from 1 where they have none."""

    value: float | NoScore
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def validate_pattern(text: str) -> regex.Pattern[str]:
    """The pattern of a check. Raises ValueError where it can't be applied to any answer."""
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
    said: SearchableAnswer,
    until: float,
    monotonic: Callable[[], float],
) -> float | NoScore:
    if pattern is None:
        return NoScore("bad_pattern")
    left = until - monotonic()
    if left <= 0:
        return NoScore("pattern_timeout")
    try:
        hit = pattern.search(said.text, timeout=left, concurrent=len(said.text) > LONG)
    except TimeoutError:
        return NoScore("pattern_timeout")
    return float(hit is not None)


def run_fact_checks(
    said: SearchableAnswer,
    checks: Sequence[FactCheck],
    monotonic: Callable[[], float],
    seconds: float = _PATTERN_TIMEOUT_SECONDS,
) -> FactCheckResult:
    """Each check passes where all its patterns are found and none of its forbidden phrases is
    (the fact score of zesty, whose checks are code).

    A check with nothing in it is none. One that has failed already stays so, whatever a pattern
    that can't be applied would have said.
    """
    # compiled before the clock runs: the first pattern of a process loads the module, too
    patterns = [[_pattern(text) for text in check.patterns] for check in checks]
    until = monotonic() + seconds
    out = FactCheckResult(NoScore("no_checks", applies=False))
    passed = 0
    gaps: list[NoScore] = []
    number = 0
    for at, check in enumerate(checks, 1):
        banned = [said.holds(phrase) for phrase in check.forbidden]
        if not check.patterns and not any(one is not None for one in banned):
            continue
        number += 1
        name = check.name or str(at)
        if any(banned):
            out.failed.append(name)
            continue
        found: list[float | NoScore] = []
        for pattern in patterns[at - 1]:
            found.append(_search(pattern, said, until, monotonic))
            if found[-1] == 0.0:
                break
        lost = [one for one in found if isinstance(one, NoScore)]
        if 0.0 in found:
            out.failed.append(name)
        elif lost:
            out.unknown.append(name)
            gaps += lost
        else:
            passed += 1
    if gaps:
        out.value = most_common_reason(gaps)
    elif number:
        out.value = passed / number
    return out


def _holds_number(number: float, numbers: Sequence[float], tolerance: float) -> bool:
    """`numbers` are sorted, so that the nearest are the two that the number lies between."""
    at = bisect_left(numbers, number)
    # a canonical form may differ from the number in the last bits
    return any(
        abs(one - number) <= tolerance or math.isclose(one, number, rel_tol=1e-9)
        for one in numbers[max(at - 1, 0) : at + 1]
    )


def check_calculation(said: SearchableAnswer, wanted: Calculation) -> float:
    """1 if the result stands in the answer and the answer does not say that it can't be
    calculated, else 0 (`is_correct` of zesty)."""
    if not _holds_number(wanted.result, sorted(number_values(said.numbers)), wanted.tolerance):
        return 0.0
    if any(said.holds(phrase) for phrase in _CAN_NOT) or abstains(said.text):
        return 0.0
    return 1.0


def check_calculation_steps(said: SearchableAnswer, wanted: Calculation) -> float | NoScore:
    """Numbers of the way to the result that stand in the answer / those numbers (zesty's checks
    of base rate and factor)."""
    if not wanted.steps:
        return NoScore("no_steps", applies=False)
    stand = sorted(number_values(said.numbers))
    return sum(_holds_number(one, stand, wanted.tolerance) for one in wanted.steps) / len(
        wanted.steps
    )
