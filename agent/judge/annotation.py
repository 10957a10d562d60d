"""Annotation: an LLM judge gives every label of a trace, passages and answer, in one call.

The labels are those that people give (agent.feedback.labels), so that the same metrics follow
from them, as the scorer `annotation`. Contradictory labels are no verdict: the judge is asked again
with what is wrong, and after all retries the trace is `unparsable`, as with any other judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from agent.feedback.labels import (
    ANNOTATION,
    ANSWER_LABELS,
    PASSAGE_LABELS,
    AnswerLabels,
    PassageLabels,
)
from agent.judge.asked import (
    MAX_ANSWER,
    MAX_QUERY,
    Asked,
    ask,
    labels,
    text_gap,
)
from agent.judge.material import passage_texts
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.labelled.answers import answer_scores
from agent.metrics.labelled.passages import passage_scores
from agent.metrics.labelled.scores import metric_names
from agent.metrics.operational import is_empty
from agent.metrics.results import Gap, result
from agent.tiers import Cost
from agent.trace import Score, Trace

__all__ = ["Annotation", "annotate", "question", "score"]

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
    texts = passage_texts(trace)
    if isinstance(texts, Gap):
        return Asked(texts)
    return await ask(asking, question(trace.query or "", texts, trace.answer or ""), cost)


async def score(asking: Asking, trace: Trace, ks: Sequence[int], cost: Cost) -> list[Score]:
    """What the labels of the judge amount to: one result for each metric that labels can give, cut
    off at `ks`."""
    asked = await annotate(asking, trace, cost)
    if isinstance(asked.value, Gap):
        gap = asked.value
        return [result(name, trace, gap, ANNOTATION) for name in metric_names(ks)]
    values = passage_scores(asked.value.passages, ks) | answer_scores(asked.value.answer)
    return [
        result(
            name,
            trace,
            value,
            ANNOTATION,
            fingerprint=None if isinstance(value, Gap) else asked.fingerprint,
        )
        for name, value in values.items()
    ]
