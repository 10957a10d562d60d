"""Write the answers to the questions in words, the same on every surface; pure."""

from __future__ import annotations

from collections.abc import Mapping

from ragmeter.parts.views import Answer, Level, Source, SourceChange

MARKS = {"bad": "■", "moved": "▲", "good": "", "not enough": ""}
"""The mark beside a number, by the state of its question."""

THOUSAND = 1_000  # answers whose cost is shown: that of one has too many zeros


_MEASURES: Mapping[Source, str] = {
    "requests": "every request",
    "estimate": "tokens and list prices",
    "labels": "labels",
    "judge": "the judge",
    "model": "the model",
    "builtin": "built-in rules",
}


def format_source_change(change: SourceChange) -> str:
    """Return what a level rests on now, in words: the number may move though nothing else has."""
    return f"measured by {_MEASURES[change.source]} instead of {_MEASURES[change.before]}"


def format_number(answer: Answer, value: float) -> str:
    """Return a value of a question with its unit."""
    if answer.unit == "seconds":
        return f"{value:.3g} s"
    if answer.unit == "usd":
        return f"${THOUSAND * value:.3g}"
    return f"{100 * value:.0f} %"


def format_judge_cost(usd_per_answer: float) -> str:
    """Return what judging adds to the cost of answers."""
    return f"the judge adds ${THOUSAND * usd_per_answer:.2g}"


def format_range(answer: Answer, level: Level) -> str:
    """Return the 95 % interval of a level, without the unit."""
    scale = {"share": 100.0, "usd": float(THOUSAND), "seconds": 1.0}[answer.unit]
    form = ".0f" if answer.unit == "share" else ".3g"
    lower = format(scale * level.lower, form)
    if level.upper is None:
        return f"{lower} or more"
    return f"{lower} to {scale * level.upper:{form}}"


def format_level(answer: Answer) -> str:
    """Return the number of a question with its interval, and its window but for the last hour."""
    level = answer.level
    if level is None:
        return "not enough yet"
    about = "" if level.window in ("1h", "file") else f" in {level.window}"
    per = " / 1,000" if answer.unit == "usd" else ""
    return f"{format_number(answer, level.value)}{per} ({format_range(answer, level)}){about}"


def format_change(answer: Answer) -> str:
    """Return how far the last hour is from the usual, empty where that is not known.

    What may be chance is called that: a fall of five points which is none would be acted upon.
    """
    movement = answer.movement
    if movement is None:
        return ""
    if movement.lower <= 0 <= movement.upper:
        return "within chance"
    if answer.unit == "share":
        points = "point" if abs(round(movement.change)) == 1 else "points"
        return f"{movement.change:+.0f} {points}"
    if not answer.usual:
        return ""
    return format_ratio((answer.usual + movement.change) / answer.usual)


def format_ratio(ratio: float) -> str:
    """Return a value as a multiple of the one before: `× 2.4`, or `+15 %` below twice."""
    return f"× {ratio:.1f}" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


def format_usual(answer: Answer) -> str:
    """Return the usual with its unit, empty where it is not known."""
    return "" if answer.usual is None else format_number(answer, answer.usual)


def format_goal(answer: Answer) -> str:
    """Return the goal with its unit, empty where there is none."""
    if answer.goal is None:
        return ""
    if answer.unit == "share":
        return f"{100 * answer.goal:g} %"
    return format_number(answer, answer.goal)
