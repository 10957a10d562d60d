"""Ask the judge whether an answer attempts the question.

A partial answer does, as in the reference, whose judge knows only yes and no.
"""

from __future__ import annotations

from typing import Literal, get_args

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import FamilyScores, ask_judge
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    MAX_QUERY_CHARS,
    missing_text_reason,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

AttemptLabel = Literal["answered", "partial", "none"]
ATTEMPT_LABELS: tuple[AttemptLabel, ...] = get_args(AttemptLabel)
_ATTEMPT_PROMPT = load_prompt("attempted", 2)


def attempt_question(query: str, answer: str) -> JudgeQuestion[AttemptLabel]:
    """Return the question how far the answer attempts the query."""
    labels: dict[str, AttemptLabel] = {label: label for label in ATTEMPT_LABELS}
    return _ATTEMPT_PROMPT.ask_label("attempt", labels, {"question": query, "answer": answer})


def attempt_value(attempt: AttemptLabel) -> float:
    """Return 1 where the answer attempts anything of the question, else 0."""
    return 0.0 if attempt == "none" else 1.0


async def score_attempt(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the metric `answered`; its detail has the label."""
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    if has_empty_answer(trace):
        # a blank answer attempts nothing; no judge need say so
        return FamilyScores.build({"answered": 0.0}, None)
    reason = missing_text_reason(trace.answer, MAX_ANSWER_CHARS) or missing_text_reason(
        trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY
    )
    if reason is not None:
        return reason
    question = attempt_question(trace.query or "", trace.answer or "")
    result = await ask_judge(judge, question, cost)
    if isinstance(result.value, NoScore):
        return result.value
    values = {"answered": attempt_value(result.value)}
    return FamilyScores.build(values, result.fingerprint, answered={"attempt": result.value})
