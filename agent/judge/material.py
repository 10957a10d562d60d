"""What of a trace is put before a judge that reads all of it: query, passages, answer at once."""

from __future__ import annotations

from typing import NamedTuple

from agent.judge.asked import MAX_ANSWER, MAX_PASSAGE, MAX_QUERY, text_gap
from agent.metrics.operational import is_empty
from agent.metrics.ranking import rank_order
from agent.metrics.results import Gap
from agent.trace import Trace

__all__ = [
    "MAX_DETAIL_TEXT",
    "MAX_LISTED",
    "MAX_PASSAGES",
    "MAX_TEXT",
    "Material",
    "listed",
    "material",
    "passage_texts",
]

# The 150 labels of an annotation are as many as a judge keeps apart; it bounds answers, too.
MAX_PASSAGES = 50
MAX_TEXT = 100_000  # characters of all passages, some 25,000 tokens, as one window of nuggets
MAX_LISTED = 60  # claims, facts or statements of one call: an answer of a page has some 40
MAX_CHARS = 400  # of one of them that a judge writes; a sentence of 60 words is one still
MAX_DETAIL_TEXT = 120  # characters of one of them that a result carries, as of a nugget


class Material(NamedTuple):
    """The texts, each within its bound; `passages` in rank order, at least one."""

    query: str
    passages: list[str]
    answer: str


def passage_texts(trace: Trace) -> list[str] | Gap:
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


def material(trace: Trace) -> Material | Gap:
    """What an answer is held against its passages with, or why that can't be done.

    An answer that refuses is judged as any other. Where nothing was retrieved there is nothing to
    hold it against.
    """
    if trace.status != "ok":
        return Gap(trace.status, applies=False)
    if is_empty(trace):
        return Gap("empty_answer", applies=False)
    gap = text_gap(trace.answer, MAX_ANSWER) or text_gap(trace.query, MAX_QUERY, "no_query")
    if gap is not None:
        return gap
    texts = passage_texts(trace)
    if isinstance(texts, Gap):
        return texts
    if not texts:
        return Gap("no_passages", applies=False)
    return Material(trace.query or "", texts, trace.answer or "")


def listed(text: str, what: str) -> str:
    """One item of a list that a judge wrote, on one line. ValueError where it can't be one."""
    line = " ".join(text.split())
    if not any(sign.isalnum() for sign in line):
        raise ValueError(f"{what} is empty")
    if len(line) > MAX_CHARS:
        raise ValueError(f"{what} is too long: at most {MAX_CHARS} characters")
    return line
