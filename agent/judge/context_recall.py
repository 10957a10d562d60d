"""Context recall: an LLM judge looks for the statements of a reference in the passages.

The statements are the facts that the reference names, else the sentences of its answer. One call
for a canary; other traces have no reference and cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.judge.asked import MAX_ANSWER, MAX_QUERY, ask, labels
from agent.judge.material import MAX_DETAIL_TEXT, MAX_LISTED, passage_texts
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.context import context_recall
from agent.metrics.evidence import read_answer
from agent.metrics.results import JUDGE, Gap, result
from agent.tiers import Cost
from agent.trace import Reference, Score, Trace

__all__ = ["question", "score", "statements"]

METRIC = "context_recall"
SUPPORT = ("supported", "unsupported")
MAX_SHOWN = 10  # statements that were missed and that a result carries
PROMPT = load("context-recall", 1)


def statements(reference: Reference | None) -> list[str] | Gap:
    """What the passages should hold."""
    if reference is None:
        return Gap("no_reference", applies=False)
    if reference.answerable is False:
        return Gap("unanswerable", applies=False)
    answer = reference.answer or ""
    found = [fact for fact in reference.facts if fact.strip()]
    if sum(map(len, found)) > MAX_ANSWER or (not found and len(answer) > MAX_ANSWER):
        return Gap("too_long")
    found = [" ".join(text.split()) for text in found or _sentences(answer)]
    if not found:
        return Gap("no_reference_answer", applies=False)
    return found if len(found) <= MAX_LISTED else Gap("too_long")


def _sentences(answer: str) -> list[str]:
    return [claim.text for claim in read_answer(answer).claims]


def question(query: str, passages: Sequence[str], wanted: Sequence[str]) -> Question[list[bool]]:
    """Whether the passages hold each of the statements."""
    numbers = [str(n) for n in range(1, len(wanted) + 1)]

    def read(reply: Any) -> list[bool]:
        return [reply[number] == SUPPORT[0] for number in numbers]

    return PROMPT.ask(
        {
            "query": query,
            "passages": passages,
            "statements": "\n".join(f"{n}. {text}" for n, text in enumerate(wanted, 1)),
        },
        facts={"count": len(wanted)},
        schema=labels(numbers, SUPPORT),
        read=read,
        max_output_tokens=200 + 10 * len(wanted),
    )


async def score(asking: Asking, trace: Trace, cost: Cost) -> list[Score]:
    """The result for `context_recall`. An empty retrieval holds no statement: 0, without a call."""
    if trace.reference is not None and trace.status != "ok":
        return [result(METRIC, trace, Gap(trace.status, applies=False), JUDGE)]
    wanted = statements(trace.reference)
    if isinstance(wanted, Gap):
        return [result(METRIC, trace, wanted, JUDGE)]
    texts = passage_texts(trace)
    if isinstance(texts, Gap):
        return [result(METRIC, trace, texts, JUDGE)]
    if not texts:
        return [result(METRIC, trace, 0.0, JUDGE)]
    # cut, and no gap: it only tells what the statements are about
    asked = await ask(asking, question((trace.query or "")[:MAX_QUERY], texts, wanted), cost)
    if isinstance(asked.value, Gap):
        return [result(METRIC, trace, asked.value, JUDGE)]
    missed = [text for text, held in zip(wanted, asked.value, strict=True) if not held]
    shown = {
        "statements": len(wanted),
        "missed": len(missed),
        "missed_statements": [text[:MAX_DETAIL_TEXT] for text in missed[:MAX_SHOWN]],
    }
    value = context_recall(asked.value)
    return [result(METRIC, trace, value, JUDGE, detail=shown, fingerprint=asked.fingerprint)]
