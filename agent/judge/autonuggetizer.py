"""AutoNuggetizer: an LLM judge finds the facts an answer should hold and looks for them in it.

Creation walks the relevant passages in windows of ten, one call after another; then importance and
assignment go in tens, side by side (arXiv 2411.09607, 2504.15068). With at most `KEPT` nuggets
none is left out, so that assignment does not wait for importance.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.judge.asked import Asked, ask, labels
from agent.judge.prompts import Prompt, load
from agent.judge.question import Asking, Question
from agent.metrics.nuggets import IMPORTANCE, KEPT, SUPPORT, Importance, Support, keep
from agent.metrics.results import Gap, prevailing
from agent.tiers import Cost

__all__ = [
    "LEAST_GRADE",
    "Nuggets",
    "assignment_question",
    "creation_question",
    "importance_question",
    "nuggetize",
    "windows",
]

T = TypeVar("T")

LEAST_GRADE = 1  # of a passage that nuggets are taken from
WINDOW = 10  # passages, or nuggets, of one call
MAX_WINDOW = 100_000  # characters of the passages of one call, some 25,000 tokens
MAX_NUGGETS = 30
MAX_WORDS = 12
# Judges miscount words, and a fact of 14 is one still: what is refused is a nugget far too long.
TOLERATED_WORDS = 2 * MAX_WORDS
MAX_CHARS = 300  # of one nugget, for languages that write no spaces
CREATE = load("nuggets-create", 1)
WEIGH = load("nuggets-importance", 1)
ASSIGN = load("nuggets-assign", 1)


@dataclass(slots=True)
class Nuggets:
    """What was found. `importance` and `supports` have one entry for each of `texts`, which are
    those that count, at most `KEPT`; `created` is their number before the cut.

    With `gap` there are no nuggets for that reason. `importance` is a gap where any call for it
    failed.
    """

    texts: list[str] = field(default_factory=list)
    importance: list[Importance] | Gap = field(default_factory=list)
    supports: list[Support | Gap] = field(default_factory=list)
    created: int = 0
    gap: Gap | None = None
    creation: list[Asked[Any]] = field(default_factory=list)
    weighing: list[Asked[Any]] = field(default_factory=list)
    assignment: list[Asked[Any]] = field(default_factory=list)


def windows(passages: Sequence[str]) -> list[list[str]]:
    """Passages in windows of ten at most, less where they are long."""
    out: list[list[str]] = []
    size = 0
    for passage in passages:
        if not out or len(out[-1]) == WINDOW or size + len(passage) > MAX_WINDOW:
            out.append([])
            size = 0
        out[-1].append(passage)
        size += len(passage)
    return out


def _numbered(nuggets: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(nuggets, 1))


def _read_list(reply: Any) -> list[str]:
    """The nuggets, each once and on one line, the first `MAX_NUGGETS`."""
    out: dict[str, str] = {}
    for number, raw in enumerate(reply["nuggets"], 1):
        text = re.sub(r"\s+", " ", raw).strip()
        if not re.search(r"\w", text):
            raise ValueError(f"nugget {number} is empty")
        if len(text.split()) > TOLERATED_WORDS or len(text) > MAX_CHARS:
            raise ValueError(f"nugget {number} is too long: at most {MAX_WORDS} words")
        out.setdefault(text.casefold(), text)
    return list(out.values())[:MAX_NUGGETS]


def creation_question(
    query: str, passages: Sequence[str], so_far: Sequence[str]
) -> Question[list[str]]:
    """The list of nuggets, brought up to date with these passages."""
    schema = {
        "type": "object",
        "properties": {"nuggets": {"type": "array", "items": {"type": "string"}}},
        "required": ["nuggets"],
        "additionalProperties": False,
    }
    return CREATE.ask(
        {"query": query, "nuggets": _numbered(so_far), "passages": passages},
        schema=schema,
        read=_read_list,
        max_output_tokens=2000,
    )


def _each(
    prompt: Prompt, data: dict[str, str], nuggets: Sequence[str], values: Sequence[T]
) -> Question[list[T]]:
    """One of `values` for each nugget."""
    numbers = [str(n) for n in range(1, len(nuggets) + 1)]

    def read(reply: Any) -> list[T]:
        return [values[values.index(reply[number])] for number in numbers]

    return prompt.ask(
        {**data, "nuggets": _numbered(nuggets)},
        facts={"count": len(nuggets)},
        schema=labels(numbers, [str(value) for value in values]),
        read=read,
        max_output_tokens=200 + 20 * len(nuggets),
    )


def importance_question(query: str, nuggets: Sequence[str]) -> Question[list[Importance]]:
    """Whether each of at most ten nuggets is vital or okay."""
    return _each(WEIGH, {"query": query}, nuggets, IMPORTANCE)


def assignment_question(query: str, answer: str, nuggets: Sequence[str]) -> Question[list[Support]]:
    """How far the answer supports each of at most ten nuggets."""
    return _each(ASSIGN, {"query": query, "answer": answer}, nuggets, SUPPORT)


async def _in_tens(
    asking: Asking,
    make: Callable[[Sequence[str]], Question[list[T]]],
    nuggets: Sequence[str],
    cost: Cost,
) -> tuple[list[T | Gap], list[Asked[list[T]]]]:
    """A label or a gap for each nugget, and the calls behind them."""
    tens = [nuggets[at : at + WINDOW] for at in range(0, len(nuggets), WINDOW)]
    asked = await asyncio.gather(*[ask(asking, make(ten), cost) for ten in tens])
    found: list[T | Gap] = []
    for ten, one in zip(tens, asked, strict=True):
        found += [one.value] * len(ten) if isinstance(one.value, Gap) else one.value
    return found, asked


async def nuggetize(
    asking: Asking, query: str, passages: Sequence[str], answer: str, cost: Cost
) -> Nuggets:
    """All three steps. `passages`: those of grade `LEAST_GRADE` and up, in rank order."""
    out = Nuggets()
    texts: list[str] = []
    for window in windows(passages):
        created = await ask(asking, creation_question(query, window, texts), cost)
        out.creation.append(created)
        if isinstance(created.value, Gap):
            out.gap = created.value
            return out
        texts = created.value
    out.created = len(texts)
    if not texts:
        out.gap = Gap("no_nuggets", applies=False)
        return out

    async def weigh() -> list[Importance] | Gap:
        found, out.weighing = await _in_tens(
            asking, lambda ten: importance_question(query, ten), texts, cost
        )
        gaps = [one for one in found if isinstance(one, Gap)]
        return prevailing(gaps) if gaps else [one for one in found if not isinstance(one, Gap)]

    async def assign(nuggets: Sequence[str]) -> list[Support | Gap]:
        found, out.assignment = await _in_tens(
            asking, lambda ten: assignment_question(query, answer, ten), nuggets, cost
        )
        return found

    if len(texts) <= KEPT:
        out.texts = texts
        out.importance, out.supports = await asyncio.gather(weigh(), assign(texts))
        return out
    importance = await weigh()
    if isinstance(importance, Gap):  # which ones count is not known
        out.gap = importance
        return out
    kept = keep(importance)
    out.texts = [texts[index] for index in kept]
    out.importance = [importance[index] for index in kept]
    out.supports = await assign(out.texts)
    return out
