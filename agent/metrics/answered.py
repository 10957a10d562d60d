"""Whether an answer attempts the question: refusals and "I don't know" by rules."""

from __future__ import annotations

import re

from agent.metrics.operational import is_empty
from agent.metrics.results import BUILTIN, not_applicable, scored, unscored
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["SPECS", "abstains", "score", "verdict"]

SPECS = (
    MetricSpec(
        name="answered",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="share of answers that attempt the question rather than refuse or not know",
        formula="0 if the answer is blank, is marked abstained, or matches a refusal rule; else 1",
        source="trace.abstained where given, else phrase rules on the answer",
    ),
)

_NO = re.compile(
    r"\b(?:i(?:'m| am) (?:sorry|afraid|unable|not able|not sure)|i apologi[sz]e"
    r"|(?:i|we) (?:do not|don't|cannot|can't|could not|couldn't|am unable to|was unable to)"
    r" (?:know|have|find|answer|provide|help|assist|see|determine|tell)"
    r"|no (?:specific |relevant )?(?:information|mention|answer)"
    r"|(?:does|do|did) not (?:\w+ ){0,2}(?:mention|provide|contain|include|specify|say))\b"
)


def abstains(answer: str) -> bool:
    """Whether the answer amounts to a refusal or to "I don't know"."""
    return _NO.search(answer[:400].lower().replace("’", "'")) is not None


def verdict(trace: Trace) -> float | None:
    """1 answered, 0 not; None where the answer was not captured. Status is not looked at."""
    empty = is_empty(trace)
    if empty:
        return 0.0
    if trace.abstained is not None:
        return 0.0 if trace.abstained else 1.0
    if trace.answer is None:
        return None
    return 0.0 if abstains(trace.answer) else 1.0


def score(trace: Trace, answered: float | None) -> Score:
    """The score of `answered`, from its verdict."""
    if trace.status != "ok":
        return not_applicable("answered", trace, trace.status)
    if answered is None:
        return unscored("answered", trace, "no_text")
    return scored("answered", trace, answered)
