"""No-answer: an LLM judge says whether an answer attempts the question.

A partial answer attempts it: the quantity is "share of answers that attempt the question", as in
the reference, whose judge knows only yes and no. The label is kept in the detail.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from agent.judge.asked import choice
from agent.judge.prompts import load
from agent.judge.question import Question

__all__ = ["ATTEMPTS", "Attempt", "question", "value"]

Attempt = Literal["answered", "partial", "none"]
ATTEMPTS: tuple[Attempt, ...] = get_args(Attempt)
PROMPT = load("attempted", 1)


def question(query: str, answer: str) -> Question[Attempt]:
    """How far the answer attempts the question."""

    def read(reply: Any) -> Attempt:
        return ATTEMPTS[ATTEMPTS.index(reply["attempt"])]

    return PROMPT.ask(
        {"question": query, "answer": answer},
        schema=choice("attempt", ATTEMPTS),
        read=read,
        max_output_tokens=200,
    )


def value(attempt: Attempt) -> float:
    """1 where anything of the question is attempted, else 0."""
    return 0.0 if attempt == "none" else 1.0
