"""Annotation: all labels of a trace, passages and answer, from one judge call.

The labels are those that people give (ragmeter.core.feedback), so that the same metrics follow
from them, as the scorer `annotation`. Contradictory labels are no verdict: the judge is asked again
with what is wrong, and after all retries the trace is `unparsable`, as with any other judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from ragmeter.core.feedback import (
    ANNOTATION,
    ANSWER_LABELS,
    PASSAGE_LABELS,
    AnswerLabels,
    PassageLabels,
)
from ragmeter.core.score import NoScore, Score, make_score
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.labelled import (
    labelled_metric_names,
    score_answer_labels,
    score_passage_labels,
)
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.scorers.judge.calls import (
    MAX_ANSWER_CHARS,
    MAX_QUERY_CHARS,
    JudgeResult,
    ask_judge,
    labels_schema,
    missing_text_reason,
    ranked_passage_texts,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

_YES, NO = "yes", "no"
_PROMPT = load_prompt("annotation", 1)


class JudgeAnnotation(NamedTuple):
    """`passages` in the order in which they were asked about."""

    passages: list[PassageLabels]
    answer: AnswerLabels


def _labelled(reply: dict[str, str]) -> dict[str, bool]:
    return {name: value == _YES for name, value in reply.items()}


def _first_error(error: ValidationError) -> str:
    # the text of a validator of ours, which names labels and quotes nothing of the reply
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def annotation_question(
    query: str, passages: Sequence[str], answer: str
) -> JudgeQuestion[JudgeAnnotation]:
    """All labels of a query, its passages in rank order (there may be none) and its answer."""
    numbers = [str(n) for n in range(1, len(passages) + 1)]
    of_passage = labels_schema(PASSAGE_LABELS, (_YES, NO))
    schema = {
        "type": "object",
        "properties": {
            "passages": {
                "type": "object",
                "properties": dict.fromkeys(numbers, of_passage),
                "required": numbers,
                "additionalProperties": False,
            },
            "answer": labels_schema(ANSWER_LABELS, (_YES, NO)),
        },
        "required": ["passages", "answer"],
        "additionalProperties": False,
    }

    def read(reply: Any) -> JudgeAnnotation:
        found: list[PassageLabels] = []
        for number in numbers:
            try:
                found.append(PassageLabels(**_labelled(reply["passages"][number])))
            except ValidationError as error:
                raise ValueError(f"passage {number}: {_first_error(error)}") from None
        try:
            return JudgeAnnotation(found, AnswerLabels(**_labelled(reply["answer"])))
        except ValidationError as error:
            raise ValueError(f"answer: {_first_error(error)}") from None

    return _PROMPT.ask(
        {"query": query, "passages": passages, "answer": answer},
        facts={"count": len(passages)},
        schema=schema,
        read=read,
        max_output_tokens=400 + 60 * len(passages),  # a passage's labels are some 35 tokens
    )


async def annotate_trace(
    asking: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> JudgeResult[JudgeAnnotation]:
    """The labels of a trace, or why there are none: an annotation takes the whole trace.

    `passages` of the annotation stand in rank order. An empty retrieval is no hindrance: the answer
    then has nothing to rest on.
    """
    if trace.status != "ok":
        return JudgeResult(NoScore(trace.status, applies=False))
    if has_empty_answer(trace):
        return JudgeResult(NoScore("empty_answer", applies=False))
    gap = missing_text_reason(trace.query, MAX_QUERY_CHARS, "no_query") or missing_text_reason(
        trace.answer, MAX_ANSWER_CHARS
    )
    if gap is not None:
        return JudgeResult(gap)
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return JudgeResult(texts)
    return await ask_judge(
        asking, annotation_question(trace.query or "", texts, trace.answer or ""), cost
    )


async def score_annotation(
    asking: QuestionAnswerer, trace: Trace, ks: Sequence[int], cost: ScoringCost
) -> list[Score]:
    """What the labels of the judge amount to: one result for each metric that labels can give, cut
    off at `ks`."""
    asked = await annotate_trace(asking, trace, cost)
    if isinstance(asked.value, NoScore):
        gap = asked.value
        return [make_score(name, trace, gap, ANNOTATION) for name in labelled_metric_names(ks)]
    values = score_passage_labels(asked.value.passages, ks) | score_answer_labels(
        asked.value.answer
    )
    return [
        make_score(
            name,
            trace,
            value,
            ANNOTATION,
            fingerprint=None if isinstance(value, NoScore) else asked.fingerprint,
        )
        for name, value in values.items()
    ]
