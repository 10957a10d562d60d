"""The content of one span in the terms that all conventions share: role, question, answer, documents, usage.

A convention is a module with two functions, `matches` and `read`. It looks at one span alone and
never raises, whatever the attributes hold. Several may match one span: `conventions.read_span`
joins their readings, the first one that knows a field gives it.
What a whole trace means is decided in `ragmeter.ingest.requests.extraction`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class SpanRole(StrEnum):
    """What a span is for. CHAIN is whatever only wraps others: chain, workflow, task, agent."""

    CHAIN = "chain"
    RETRIEVER = "retriever"
    RERANKER = "reranker"
    VECTOR_DB = "vector_db"
    LLM = "llm"
    EMBEDDING = "embedding"
    TOOL = "tool"
    EVALUATOR = "evaluator"
    OTHER = "other"


class ContentGap(StrEnum):
    """Why content is not there, or not whole. These are the reasons of `unscored` results."""

    HIDDEN = "content_hidden"
    NO_QUERY = "no_query_captured"
    NO_ANSWER = "no_answer_captured"
    NO_PASSAGES = "no_passages_captured"
    ID_ONLY = "passages_id_only"
    PASSAGES_TRUNCATED = "passages_truncated"
    ANSWER_TRUNCATED = "answer_truncated"
    QUERY_TRUNCATED = "query_truncated"


@dataclass(slots=True)
class RetrievedDocument:
    """One retrieved text. `score_kind` is `similarity`, `distance` (lower is better) or "" where
    the convention does not say. `gap` is why `text` is None or not whole."""

    id: str = ""
    text: str | None = None
    score: float | None = None
    score_kind: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    gap: ContentGap | None = None


@dataclass(slots=True)
class SpanContent:
    """`query` is the question as this span holds it and `answer` what it gives back, both as plain
    text (JSON is already opened); None where it says nothing. `query_gap` and `answer_gap` say why
    it has none, or not all.

    `documents` is None where this span captured no retrieval, and empty where one found nothing.
    `context` is retrieved text glued into one string. `session` and `user` are raw; `tags` are
    small scalars. `calls_tools` marks an LLM call whose reply only asks for tools.
    """

    role: SpanRole = SpanRole.OTHER
    convention: str = ""
    query: str | None = None
    query_gap: ContentGap | None = None
    answer: str | None = None
    answer_gap: ContentGap | None = None
    documents: list[RetrievedDocument] | None = None
    documents_gap: ContentGap | None = None
    context: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    first_token_ns: int | None = None
    """Unix time of the first token, in nanoseconds."""
    failed: bool = False
    """The convention says so in a way of its own; the span's status is read by others."""
    error_type: str | None = None
    error: str | None = None
    session: str | None = None
    user: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    citations: list[tuple[int | None, int | None, list[str]]] = field(default_factory=list)
    """(start, end, passage ids)"""
    calls_tools: bool = False
    light: bool = False
    """Without `query`, `answer` and their gaps, `context`, `citations` and `calls_tools`, which may
    be there all the same."""


def may_defer_content(reading: SpanContent) -> bool:
    """Whether what a span was asked and answered may be left out until somebody wants it, which
    the reading then says. Opening it is most of the work, and of most chains and calls nobody
    wants it: the topmost has what counts. Roles that hold documents are always read whole."""
    reading.light = reading.role in (SpanRole.CHAIN, SpanRole.LLM, SpanRole.OTHER)
    return reading.light
