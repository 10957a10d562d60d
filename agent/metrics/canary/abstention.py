"""Whether an answer abstains where it should, and says so where its sources disagree: by rules."""

from __future__ import annotations

import re

from agent.metrics.answered import is_english
from agent.metrics.results import Gap
from agent.trace import Reference, Trace

__all__ = ["abstention_accuracy", "acknowledges_conflict", "unanswerable_hallucination"]

_CONFLICT = re.compile(
    r"\b(?:conflict(?:s|ing)?|contradict(?:s|ory|ions?)?|disagree(?:s|ments?)?|inconsisten\w{1,3}"
    r"|discrepanc(?:y|ies)|differ(?:s|ent|ing)?|supersede[sd]?|replace[sd]|outdated|out of date"
    r"|no longer|previously|formerly|earlier|older|newer|updated|in contrast|whereas|however"
    r"|on the other hand)\b"
)
MAX_CHARS = 20_000


def abstention_accuracy(trace: Trace, reference: Reference, answered: float | None) -> float | Gap:
    """1 if the service abstained from a question that can't be answered, else 0 (helloworld-ai).

    `answered` is the verdict of `agent.metrics.answered.verdict`. Questions that can be answered
    have none: how many of them were is what `answered` measures.
    """
    if reference.answerable is not False:
        return Gap("answerable", applies=False)
    if answered is None:
        return Gap("no_text")
    if answered and trace.abstained is None and not is_english(trace.answer or ""):
        return Gap("unsupported_language")
    return 1.0 - answered


def unanswerable_hallucination(accuracy: float | Gap) -> float | Gap:
    """1 if a question that can't be answered was answered all the same, else 0."""
    return accuracy if isinstance(accuracy, Gap) else 1.0 - accuracy


def acknowledges_conflict(answer: str) -> bool | Gap:
    """Whether the answer says, in words that one uses for it, that its sources disagree."""
    if not is_english(answer):
        return Gap("unsupported_language")
    return _CONFLICT.search(answer[:MAX_CHARS].lower()) is not None
