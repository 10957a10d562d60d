"""The content of one span in the terms that all conventions share.

A convention has two functions, `matches` and `read`. It looks at one span alone and never raises,
whatever the attributes hold. Several may match one span: `registry.read_span` merges their content.
`ragmeter.ingest.requests.extraction` decides what a whole trace means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason


class SpanRole(StrEnum):
    """The use of a span. CHAIN only wraps other spans: a chain, workflow, task or agent."""

    CHAIN = "chain"
    RETRIEVER = "retriever"
    RERANKER = "reranker"
    VECTOR_DB = "vector_db"
    LLM = "llm"
    EMBEDDING = "embedding"
    TOOL = "tool"
    EVALUATOR = "evaluator"
    OTHER = "other"


@dataclass(slots=True)
class RetrievedDocument:
    """One retrieved text.

    Args:
        score_kind: `similarity`, `distance` (lower is better), or "" if the convention is silent.
        gap: Why `text` is None or not whole.
    """

    id: str = ""
    text: str | None = None
    score: float | None = None
    score_kind: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    gap: Reason | None = None

    def may_be(self, other: RetrievedDocument) -> bool:
        """Return whether the texts allow that this is the same document."""
        return self.text is None or other.text is None or self.text == other.text

    def fill_from(
        self,
        other: RetrievedDocument,
        *,
        score: bool = True,
        text: bool = True,
        metadata: bool = True,
    ) -> None:
        """Fill what is missing from the same document in another list."""
        self.id = self.id or other.id
        if score and self.score is None:
            self.score = other.score
            self.score_kind = other.score_kind
        if text and self.text is None and other.text is not None:
            self.text = other.text
            self.gap = other.gap
        if metadata:
            self.metadata = self.metadata or other.metadata


@dataclass(slots=True)
class SpanContent:
    """The content of one span; None stands for what the span does not hold.

    Args:
        query: The question as this span holds it, in plain text (JSON is already opened).
        query_gap: Why there is no question, or not all of it.
        answer: What the span gives back, in plain text.
        answer_gap: Why there is no answer, or not all of it.
        documents: None if no retrieval was captured, empty if a retrieval had no results.
        context: Retrieved text joined into one string.
        first_token_ns: Unix time of the first token, in nanoseconds.
        failed: The convention has its own mark of a failure and it is set. The status of the span
            is read elsewhere.
        session: The raw session id, not yet hashed.
        user: The raw user id, not yet hashed.
        tags: Small scalars.
        citations: (start, end, passage ids); the positions count characters of the answer.
        calls_tools: This is a model call whose reply only asks for tools.
        light: `query`, `answer` and their gaps, `context`, `citations` and `calls_tools` were left
            out, though the span may hold them.
    """

    role: SpanRole = SpanRole.OTHER
    convention: str = ""
    query: str | None = None
    query_gap: Reason | None = None
    answer: str | None = None
    answer_gap: Reason | None = None
    documents: list[RetrievedDocument] | None = None
    documents_gap: Reason | None = None
    context: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cost_usd: float | None = None
    first_token_ns: int | None = None
    failed: bool = False
    error_type: str | None = None
    error: str | None = None
    session: str | None = None
    user: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    citations: list[tuple[int | None, int | None, list[str]]] = field(default_factory=list)
    calls_tools: bool = False
    light: bool = False


def defer_content(content: SpanContent) -> bool:
    """Mark content as light if its role allows it, and return whether it does.

    Opening questions and answers is most of the work, and those of most chains and calls are never
    used: the topmost span has what counts. Roles that hold documents are always read whole.
    """
    content.light = content.role in (SpanRole.CHAIN, SpanRole.LLM, SpanRole.OTHER)
    return content.light


def has_texts(documents: list[RetrievedDocument] | None) -> bool:
    """Return whether any document has a text."""
    return any(document.text for document in documents or ())


def first_event_time(span: Span, name: str) -> int | None:
    """Return the Unix nanoseconds of the first event of that name whose time is known."""
    times = (event.time for event in span.events if event.name == name and event.time > 0)
    return next(times, None)
