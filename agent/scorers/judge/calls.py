"""One call to the judge: bounds of the texts, label schemas, and a failed call as a reason."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.ranking import rank_order
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.judge")

T = TypeVar("T")

# Characters of one text. Longer ones are never cut, but a gap, `too_long`. A passage of 40,000 is
# some 10,000 tokens: judges of today take it, and hardly any retriever returns as much.
MAX_PASSAGE_CHARS = 40_000
MAX_ANSWER_CHARS = 20_000
MAX_QUERY_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class JudgeResult(Generic[T]):
    """`fingerprint` is that of the judge which gave `value`; None with a gap."""

    value: T | NoScore
    fingerprint: str | None = None


async def ask_judge(
    asking: QuestionAnswerer, question: JudgeQuestion[T], cost: ScoringCost
) -> JudgeResult[T]:
    """The verdict, or the gap in its place: one call that fails disturbs no other."""
    try:
        verdict = await asking.ask(question, cost)
    except JudgeFailed as failed:
        return JudgeResult(NoScore(failed.reason))
    except Exception:
        log.exception("a call to the judge broke (%s)", question.prompt)
        return JudgeResult(NoScore("internal_error"))
    return JudgeResult(verdict.value, verdict.fingerprint)


def combined_fingerprint(asked: Iterable[JudgeResult[Any]]) -> str | None:
    """That of all verdicts, if they share one; else 12 hex digits of the set of them.

    None without a verdict: no judge has spoken.
    """
    found = sorted({one.fingerprint for one in asked if one.fingerprint is not None})
    if len(found) < 2:
        return found[0] if found else None
    return hashlib.sha256(",".join(found).encode()).hexdigest()[:12]


def missing_text_reason(text: str | None, limit: int, absent: str = "no_text") -> NoScore | None:
    """Why a text can't be put to a judge; None where it can."""
    if text is None or not text.strip():
        return NoScore(absent)
    return NoScore("too_long") if len(text) > limit else None


def choice_schema(name: str, values: Sequence[str]) -> dict[str, Any]:
    """The schema of an answer with one property that takes one of these values."""
    return labels_schema([name], values)


def labels_schema(names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
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


# The 150 labels of an annotation are as many as a judge keeps apart; it bounds answers, too.
MAX_PASSAGES = 50
_MAX_MATERIAL_CHARS = (
    100_000  # characters of all passages, some 25,000 tokens, as one window of nuggets
)
MAX_LISTED = 60  # claims, facts or statements of one call: an answer of a page has some 40
_MAX_ITEM_CHARS = 400  # of one of them that a judge writes; a sentence of 60 words is one still
MAX_DETAIL_TEXT = 120  # characters of one of them that a result carries, as of a nugget


class JudgeMaterial(NamedTuple):
    """The texts, each within its bound; `passages` in rank order, at least one."""

    query: str
    passages: list[str]
    answer: str


def ranked_passage_texts(trace: Trace) -> list[str] | NoScore:
    """The passages in rank order; all of them, for else nobody knows what supports the answer."""
    if trace.passages is None:
        return NoScore("no_passages_captured")
    texts = [trace.passages[index].text for index in rank_order(trace.passages)]
    for text in texts:
        gap = missing_text_reason(text, MAX_PASSAGE_CHARS)
        if gap is not None:
            return gap
    if len(texts) > MAX_PASSAGES or sum(len(text or "") for text in texts) > _MAX_MATERIAL_CHARS:
        return NoScore("too_long")
    return [text or "" for text in texts]


def prepare_material(trace: Trace) -> JudgeMaterial | NoScore:
    """What an answer is held against its passages with, or why that can't be done.

    An answer that refuses is judged as any other. Where nothing was retrieved there is nothing to
    hold it against.
    """
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    if has_empty_answer(trace):
        return NoScore("empty_answer", applies=False)
    gap = missing_text_reason(trace.answer, MAX_ANSWER_CHARS) or missing_text_reason(
        trace.query, MAX_QUERY_CHARS, "no_query"
    )
    if gap is not None:
        return gap
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return texts
    if not texts:
        return NoScore("no_passages", applies=False)
    return JudgeMaterial(trace.query or "", texts, trace.answer or "")


def clean_list_item(text: str, what: str) -> str:
    """One item of a list that a judge wrote, on one line. ValueError where it can't be one."""
    line = " ".join(text.split())
    if not any(sign.isalnum() for sign in line):
        raise ValueError(f"{what} is empty")
    if len(line) > _MAX_ITEM_CHARS:
        raise ValueError(f"{what} is too long: at most {_MAX_ITEM_CHARS} characters")
    return line
