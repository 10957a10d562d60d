"""Annotation: an LLM judge gives every label of a trace, passages and answer, in one call.

The labels are those that people give (agent.feedback.labels), so that the same metrics follow
from them, as the scorer `annotation`. Contradictory labels are no verdict: the judge is asked again
with what is wrong, and after all retries the trace is `unparsable`, as with any other judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from agent.feedback.labels import ANSWER_LABELS, PASSAGE_LABELS, AnswerLabels, PassageLabels
from agent.judge.asked import (
    MAX_ANSWER,
    MAX_PASSAGE,
    MAX_QUERY,
    Asked,
    ask,
    labels,
    text_gap,
)
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.operational import is_empty
from agent.metrics.ranking import rank_order
from agent.metrics.results import Gap
from agent.tiers import Cost
from agent.trace import Trace

__all__ = ["MAX_PASSAGES", "MAX_TEXT", "Annotation", "annotate", "question"]

MAX_PASSAGES = 50  # 150 labels are as many as a judge keeps apart; it bounds the answer, too
MAX_TEXT = 100_000  # characters of all passages, some 25,000 tokens, as one window of nuggets
YES, NO = "yes", "no"
PROMPT = load("annotation", 1)


class Annotation(NamedTuple):
    """`passages` in the order in which they were asked about."""

    passages: list[PassageLabels]
    answer: AnswerLabels


def _labelled(reply: dict[str, str]) -> dict[str, bool]:
    return {name: value == YES for name, value in reply.items()}


def _first_error(error: ValidationError) -> str:
    # the text of a validator of ours, which names labels and quotes nothing of the reply
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def question(query: str, passages: Sequence[str], answer: str) -> Question[Annotation]:
    """All labels of a query, its passages in rank order (there may be none) and its answer."""
    numbers = [str(n) for n in range(1, len(passages) + 1)]
    of_passage = labels(PASSAGE_LABELS, (YES, NO))
    schema = {
        "type": "object",
        "properties": {
            "passages": {
                "type": "object",
                "properties": dict.fromkeys(numbers, of_passage),
                "required": numbers,
                "additionalProperties": False,
            },
            "answer": labels(ANSWER_LABELS, (YES, NO)),
        },
        "required": ["passages", "answer"],
        "additionalProperties": False,
    }

    def read(reply: Any) -> Annotation:
        found: list[PassageLabels] = []
        for number in numbers:
            try:
                found.append(PassageLabels(**_labelled(reply["passages"][number])))
            except ValidationError as error:
                raise ValueError(f"passage {number}: {_first_error(error)}") from None
        try:
            return Annotation(found, AnswerLabels(**_labelled(reply["answer"])))
        except ValidationError as error:
            raise ValueError(f"answer: {_first_error(error)}") from None

    return PROMPT.ask(
        {"query": query, "passages": passages, "answer": answer},
        facts={"count": len(passages)},
        schema=schema,
        read=read,
        max_output_tokens=400 + 60 * len(passages),  # a passage's labels are some 35 tokens
    )


def _texts(trace: Trace) -> list[str] | Gap:
    """The passages in rank order; all of them, for else nobody knows what supports the answer."""
    if trace.passages is None:
        return Gap("no_passages_captured")
    texts = [trace.passages[index].text for index in rank_order(trace.passages)]
    for text in texts:
        gap = text_gap(text, MAX_PASSAGE)
        if gap is not None:
            return gap
    if len(texts) > MAX_PASSAGES or sum(len(text or "") for text in texts) > MAX_TEXT:
        return Gap("too_long")
    return [text or "" for text in texts]


async def annotate(asking: Asking, trace: Trace, cost: Cost) -> Asked[Annotation]:
    """The labels of a trace, or why there are none: an annotation takes the whole trace.

    `passages` of the annotation stand in rank order. An empty retrieval is no hindrance: the answer
    then has nothing to rest on.
    """
    if trace.status != "ok":
        return Asked(Gap(trace.status, applies=False))
    if is_empty(trace):
        return Asked(Gap("empty_answer", applies=False))
    gap = text_gap(trace.query, MAX_QUERY, "no_query") or text_gap(trace.answer, MAX_ANSWER)
    if gap is not None:
        return Asked(gap)
    texts = _texts(trace)
    if isinstance(texts, Gap):
        return Asked(texts)
    return await ask(asking, question(trace.query or "", texts, trace.answer or ""), cost)
