"""Annotation: all labels of a trace, passages and answer, from one judge call.

The labels are those that people give (`ragmeter.core.feedback`), so the same metrics follow from
them, under the scorer `annotation`. Contradictory labels are no verdict: the judge is asked again
with what is wrong, and after all retries the trace is `unparsable`, as with any other question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ragmeter.core.feedback import ANSWER_LABELS, PASSAGE_LABELS, AnswerLabels, PassageLabels
from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.labelled import score_answer_labels, score_passage_labels
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import FamilyScores, JudgeResult, ask_judge
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    MAX_QUERY_CHARS,
    missing_answer_reason,
    missing_text_reason,
    ranked_passage_texts,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.judge.schemas import labels_schema, object_schema
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

_YES = "yes"
NO = "no"
_PROMPT = load_prompt("annotation", 1)

Labels = TypeVar("Labels", bound=BaseModel)


class JudgeAnnotation(NamedTuple):
    """Labels of the passages, in the order of the question, and of the answer."""

    passages: list[PassageLabels]
    answer: AnswerLabels


def _read_labels(kind: type[Labels], reply: Mapping[str, str], subject: str) -> Labels:
    try:
        return kind(**{name: value == _YES for name, value in reply.items()})
    except ValidationError as error:
        # a validator of ours wrote the text: it names labels and quotes nothing of the reply
        text = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise ValueError(f"{subject}: {text}") from None


def annotation_question(
    query: str, passages: Sequence[str], answer: str
) -> JudgeQuestion[JudgeAnnotation]:
    """Return the question about all labels of a query, its ranked passages and its answer."""
    numbers = [str(n) for n in range(1, len(passages) + 1)]
    of_passage = labels_schema(PASSAGE_LABELS, (_YES, NO))

    def read(reply: Any) -> JudgeAnnotation:
        labels = [
            _read_labels(PassageLabels, reply["passages"][number], f"passage {number}")
            for number in numbers
        ]
        return JudgeAnnotation(labels, _read_labels(AnswerLabels, reply["answer"], "answer"))

    return _PROMPT.ask(
        {"query": query, "passages": passages, "answer": answer},
        facts={"count": len(passages)},
        schema=object_schema(
            {
                "passages": object_schema(dict.fromkeys(numbers, of_passage)),
                "answer": labels_schema(ANSWER_LABELS, (_YES, NO)),
            }
        ),
        read=read,
        max_output_tokens=400 + 60 * len(passages),  # a passage's labels are some 35 tokens
    )


async def annotate_trace(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> JudgeResult[JudgeAnnotation]:
    """Return the labels of a whole trace, passages in rank order, or why there are none.

    An empty retrieval is annotated too: the answer then has nothing to rest on.
    """
    reason = (
        missing_answer_reason(trace)
        or missing_text_reason(trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY)
        or missing_text_reason(trace.answer, MAX_ANSWER_CHARS)
    )
    texts = reason or ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return JudgeResult(texts)
    question = annotation_question(trace.query or "", texts, trace.answer or "")
    return await ask_judge(judge, question, cost)


async def score_annotation(
    judge: QuestionAnswerer, trace: Trace, ks: Sequence[int], cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the metrics that follow from the labels of the judge, with the cut-offs `ks`."""
    result = await annotate_trace(judge, trace, cost)
    if isinstance(result.value, NoScore):
        return result.value
    labels = result.value
    values = score_passage_labels(labels.passages, ks) | score_answer_labels(labels.answer)
    return FamilyScores.build(values, result.fingerprint)
