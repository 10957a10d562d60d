"""What a call gave, where a failed one is a gap and no exception; and what texts may be asked."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agent.judge.question import Asking, JudgeFailed, Question
from agent.metrics.results import Gap
from agent.tiers import Cost

__all__ = [
    "MAX_ANSWER",
    "MAX_PASSAGE",
    "MAX_QUERY",
    "Asked",
    "ask",
    "choice",
    "fingerprint",
    "labels",
    "text_gap",
]

log = logging.getLogger("ragmeter.judge")

T = TypeVar("T")

# Characters of one text. Longer ones are never cut, but a gap, `too_long`. A passage of 40,000 is
# some 10,000 tokens: judges of today take it, and hardly any retriever returns as much.
MAX_PASSAGE = 40_000
MAX_ANSWER = 20_000
MAX_QUERY = 4_000


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """`fingerprint` is that of the judge which gave `value`; None with a gap."""

    value: T | Gap
    fingerprint: str | None = None


async def ask(asking: Asking, question: Question[T], cost: Cost) -> Asked[T]:
    """The verdict, or the gap in its place: one call that fails disturbs no other."""
    try:
        verdict = await asking.ask(question, cost)
    except JudgeFailed as failed:
        return Asked(Gap(failed.reason))
    except Exception:
        log.exception("a call to the judge broke (%s)", question.prompt)
        return Asked(Gap("internal_error"))
    return Asked(verdict.value, verdict.fingerprint)


def fingerprint(asked: Iterable[Asked[Any]]) -> str | None:
    """That of all verdicts, if they share one; else 12 hex digits of the set of them.

    None without a verdict: no judge has spoken.
    """
    found = sorted({one.fingerprint for one in asked if one.fingerprint is not None})
    if len(found) < 2:
        return found[0] if found else None
    return hashlib.sha256(",".join(found).encode()).hexdigest()[:12]


def text_gap(text: str | None, limit: int, absent: str = "no_text") -> Gap | None:
    """Why a text can't be put to a judge; None where it can."""
    if text is None or not text.strip():
        return Gap(absent)
    return Gap("too_long") if len(text) > limit else None


def choice(name: str, values: Sequence[str]) -> dict[str, Any]:
    """The schema of an answer with one property that takes one of these values."""
    return labels([name], values)


def labels(names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """The schema of one label for each name.

    An object with a key for each, and not a list: no label can be too many, too few or slip to
    another name, and servers that write by the schema can't get the number wrong.
    """
    return {
        "type": "object",
        "properties": {name: {"type": "string", "enum": list(values)} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }
