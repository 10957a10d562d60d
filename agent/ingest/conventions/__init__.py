"""What spans mean, a module per convention: `read_span` joins what all that match have to say.

A convention is a module with `matches` and `read` (see `Convention`). The order of
`CONVENTIONS` is that of trust: a product's own attributes before the general ones that it also
writes, those of OpenTelemetry last. Of each field the first reading that knows it wins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from agent.ingest.conventions import (
    content_events,
    gen_ai_task,
    google_adk,
    haystack,
    langfuse,
    langsmith,
    logfire,
    loongsuite,
    mlflow,
    monocle,
    openinference,
    openllmetry,
    otel_genai,
    promptflow,
    spring_ai,
    vector_db,
    vercel_ai,
)
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.spans import Span

__all__ = ["CONVENTIONS", "Convention", "glance", "read_span"]


class Convention(Protocol):
    """`matches` looks at the scope, the names of attributes and events, the first word of the
    span's name and the values of `DECIDING` attributes, and at nothing else: what it says is
    remembered for all spans that are alike in these.

    `read` without `content` may leave out what `Reading.light` names, where there are no documents
    either; all else it says as with it."""

    def matches(self, span: Span, /) -> bool: ...

    def read(self, span: Span, /, content: bool = True) -> Reading: ...


DECIDING = (
    "gen_ai.operation.name",
    "db.system",
    "db.system.name",
    "telemetry.sdk.name",
    "framework",
)


# One line a convention, the most particular first.
CONVENTIONS: tuple[Convention, ...] = (
    langfuse,
    mlflow,
    langsmith,
    vercel_ai,
    logfire,
    google_adk,
    promptflow,
    monocle,
    haystack,
    spring_ai,
    openinference,
    openllmetry,
    loongsuite,
    gen_ai_task,
    vector_db,
    content_events,
    otel_genai,
)


_REMEMBERED = 4_096  # kinds of spans; an application sends some dozens, by the length of its lists
_MAX_NAMES = 256  # of a span that is remembered
_matching: dict[int, tuple[Convention, ...]] = {}


def _conventions(span: Span) -> tuple[Convention, ...]:
    """The conventions that match a span. Asking all of them costs more than reading what they say,
    so the answer is kept, by a hash: what a sender makes up must not stay in memory."""
    attributes, events = span.attributes, span.events
    if len(attributes) + len(events) > _MAX_NAMES:
        return tuple(one for one in CONVENTIONS if one.matches(span))
    kind = hash(
        (
            span.scope,
            span.name.partition(".")[0],
            *attributes,
            None,  # no name: where those of events begin
            *[event.name for event in events],
            *[
                value if isinstance(value := attributes[name], str) else type(value)
                for name in DECIDING
                if name in attributes  # which it is, the names tell
            ],
        )
    )
    known = _matching.get(kind)
    if known is None:
        known = tuple(one for one in CONVENTIONS if one.matches(span))
        if len(_matching) >= _REMEMBERED:
            _matching.clear()
        _matching[kind] = known
    return known


def glance(span: Span) -> Reading:
    """A reading that may be `light`: `read_span` has to follow for those spans that turn out to
    matter. It takes a third of the time."""
    matching = _conventions(span)
    if matching == _WRAPPING:
        light = openinference.glance(span)
        if light is not None:
            return light
    return _read(span, matching, content=False)


_WRAPPING: tuple[Convention, ...] = (openinference,)


def read_span(span: Span) -> Reading:
    """The readings of all conventions that match, joined in the order of `CONVENTIONS`.

    The role is that of the first convention that knows one. Documents are those of the first
    convention that has texts, else the first list at all. A gap counts only where no convention
    has the content.
    """
    return _read(span, _conventions(span), content=True)


def _read(span: Span, matching: tuple[Convention, ...], content: bool) -> Reading:
    if not matching:
        return Reading()
    first, *others = [convention.read(span, content) for convention in matching]
    for other in others:
        _join(first, other)
    return first


def _join(into: Reading, other: Reading) -> None:
    if into.role is Role.OTHER:
        into.role = other.role
    into.convention = into.convention or other.convention
    if into.query is None:
        into.query, into.query_gap = other.query, other.query_gap or into.query_gap
    if into.answer is None:
        into.answer, into.answer_gap = other.answer, other.answer_gap or into.answer_gap
    _join_documents(into, other)
    for name in (
        "context",
        "model",
        "prompt_version",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "first_token_ns",
        "error_type",
        "error",
        "session",
        "user",
    ):
        if getattr(into, name) is None:
            setattr(into, name, getattr(other, name))
    into.failed = into.failed or other.failed
    into.tags = {**other.tags, **into.tags}
    into.citations = into.citations or other.citations
    into.calls_tools = into.calls_tools or other.calls_tools
    into.light = into.light or other.light


def _join_documents(into: Reading, other: Reading) -> None:
    if other.documents is None:
        into.documents_gap = into.documents_gap or other.documents_gap
        return
    texts = into.documents is not None and any(one.text for one in into.documents)
    if into.documents is None or (not texts and any(one.text for one in other.documents)):
        known = {one.id: one for one in into.documents or [] if one.id}
        into.documents = [
            replace(one, score=one.score if one.score is not None else known[one.id].score)
            if one.id in known
            else one
            for one in other.documents
        ]
        into.documents_gap = other.documents_gap
    elif into.documents and len(into.documents) == len(other.documents):
        # the same list in two ways: ids and scores may be in the second only
        for mine, its in zip(into.documents, other.documents, strict=True):
            if mine.text is not None and its.text is not None and mine.text != its.text:
                continue
            mine.id = mine.id or its.id
            if mine.score is None:
                mine.score, mine.score_kind = its.score, its.score_kind
