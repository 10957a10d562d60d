"""AutoNuggetizer: find the facts an answer should hold, weigh them, and look for them in it.

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

from ragmeter.core.score import NoScore, most_common_reason
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.claims_and_nuggets import (
    MAX_SCORED_NUGGETS,
    NUGGET_IMPORTANCE,
    NUGGET_SUPPORT,
    NuggetImportance,
    NuggetSupport,
    select_nuggets,
)
from ragmeter.scorers.judge.calls import JudgeResult, ask_judge, labels_schema
from ragmeter.scorers.judge.prompts import PromptTemplate, load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer

T = TypeVar("T")

MIN_NUGGET_GRADE = 1  # of a passage that nuggets are taken from
_WINDOW_PASSAGES = 10  # passages, or nuggets, of one call
_MAX_WINDOW_CHARS = 100_000  # characters of the passages of one call, some 25,000 tokens
_MAX_NUGGETS = 30
_MAX_WORDS = 12
# Judges miscount words, and a fact of 14 is one still: what is refused is a nugget far too long.
_TOLERATED_WORDS = 2 * _MAX_WORDS
MAX_CHARS = 300  # of one nugget, for languages that write no spaces
_CREATE_PROMPT = load_prompt("nuggets-create", 1)
_WEIGH_PROMPT = load_prompt("nuggets-importance", 1)
_ASSIGN_PROMPT = load_prompt("nuggets-assign", 1)


@dataclass(slots=True)
class NuggetFindings:
    """What was found. `importance` and `supports` have one entry for each of `texts`, which are
    those that count, at most `KEPT`; `created` is their number before the cut.

    With `gap` there are no nuggets for that reason. `importance` is a gap where any call for it
    failed.
    """

    texts: list[str] = field(default_factory=list)
    importance: list[NuggetImportance] | NoScore = field(default_factory=list)
    supports: list[NuggetSupport | NoScore] = field(default_factory=list)
    created: int = 0
    gap: NoScore | None = None
    creation: list[JudgeResult[Any]] = field(default_factory=list)
    weighing: list[JudgeResult[Any]] = field(default_factory=list)
    assignment: list[JudgeResult[Any]] = field(default_factory=list)


def passage_windows(passages: Sequence[str]) -> list[list[str]]:
    """Passages in windows of ten at most, less where they are long."""
    out: list[list[str]] = []
    size = 0
    for passage in passages:
        if not out or len(out[-1]) == _WINDOW_PASSAGES or size + len(passage) > _MAX_WINDOW_CHARS:
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
        if len(text.split()) > _TOLERATED_WORDS or len(text) > MAX_CHARS:
            raise ValueError(f"nugget {number} is too long: at most {_MAX_WORDS} words")
        out.setdefault(text.casefold(), text)
    return list(out.values())[:_MAX_NUGGETS]


def creation_question(
    query: str, passages: Sequence[str], so_far: Sequence[str]
) -> JudgeQuestion[list[str]]:
    """The list of nuggets, brought up to date with these passages."""
    schema = {
        "type": "object",
        "properties": {"nuggets": {"type": "array", "items": {"type": "string"}}},
        "required": ["nuggets"],
        "additionalProperties": False,
    }
    return _CREATE_PROMPT.ask(
        {"query": query, "nuggets": _numbered(so_far), "passages": passages},
        schema=schema,
        read=_read_list,
        max_output_tokens=2000,
    )


def _each(
    prompt: PromptTemplate, data: dict[str, str], nuggets: Sequence[str], values: Sequence[T]
) -> JudgeQuestion[list[T]]:
    """One of `values` for each nugget."""
    numbers = [str(n) for n in range(1, len(nuggets) + 1)]

    def read(reply: Any) -> list[T]:
        return [values[values.index(reply[number])] for number in numbers]

    return prompt.ask(
        {**data, "nuggets": _numbered(nuggets)},
        facts={"count": len(nuggets)},
        schema=labels_schema(numbers, [str(value) for value in values]),
        read=read,
        max_output_tokens=200 + 20 * len(nuggets),
    )


def importance_question(
    query: str, nuggets: Sequence[str]
) -> JudgeQuestion[list[NuggetImportance]]:
    """Whether each of at most ten nuggets is vital or okay."""
    return _each(_WEIGH_PROMPT, {"query": query}, nuggets, NUGGET_IMPORTANCE)


def assignment_question(
    query: str, answer: str, nuggets: Sequence[str]
) -> JudgeQuestion[list[NuggetSupport]]:
    """How far the answer supports each of at most ten nuggets."""
    return _each(_ASSIGN_PROMPT, {"query": query, "answer": answer}, nuggets, NUGGET_SUPPORT)


async def _in_tens(
    asking: QuestionAnswerer,
    make: Callable[[Sequence[str]], JudgeQuestion[list[T]]],
    nuggets: Sequence[str],
    cost: ScoringCost,
) -> tuple[list[T | NoScore], list[JudgeResult[list[T]]]]:
    """A label or a gap for each nugget, and the calls behind them."""
    tens = [nuggets[at : at + _WINDOW_PASSAGES] for at in range(0, len(nuggets), _WINDOW_PASSAGES)]
    asked = await asyncio.gather(*[ask_judge(asking, make(ten), cost) for ten in tens])
    found: list[T | NoScore] = []
    for ten, one in zip(tens, asked, strict=True):
        found += [one.value] * len(ten) if isinstance(one.value, NoScore) else one.value
    return found, asked


async def nuggetize(
    asking: QuestionAnswerer, query: str, passages: Sequence[str], answer: str, cost: ScoringCost
) -> NuggetFindings:
    """All three steps. `passages`: those of grade `LEAST_GRADE` and up, in rank order."""
    out = NuggetFindings()
    texts: list[str] = []
    for window in passage_windows(passages):
        created = await ask_judge(asking, creation_question(query, window, texts), cost)
        out.creation.append(created)
        if isinstance(created.value, NoScore):
            out.gap = created.value
            return out
        texts = created.value
    out.created = len(texts)
    if not texts:
        out.gap = NoScore("no_nuggets", applies=False)
        return out

    async def weigh() -> list[NuggetImportance] | NoScore:
        found, out.weighing = await _in_tens(
            asking, lambda ten: importance_question(query, ten), texts, cost
        )
        gaps = [one for one in found if isinstance(one, NoScore)]
        return (
            most_common_reason(gaps)
            if gaps
            else [one for one in found if not isinstance(one, NoScore)]
        )

    async def assign(nuggets: Sequence[str]) -> list[NuggetSupport | NoScore]:
        found, out.assignment = await _in_tens(
            asking, lambda ten: assignment_question(query, answer, ten), nuggets, cost
        )
        return found

    if len(texts) <= MAX_SCORED_NUGGETS:
        out.texts = texts
        out.importance, out.supports = await asyncio.gather(weigh(), assign(texts))
        return out
    importance = await weigh()
    if isinstance(importance, NoScore):  # which ones count is not known
        out.gap = importance
        return out
    kept = select_nuggets(importance)
    out.texts = [texts[index] for index in kept]
    out.importance = [importance[index] for index in kept]
    out.supports = await assign(out.texts)
    return out
