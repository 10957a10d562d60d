"""The registry of all conventions, and the merged content of every convention that matches a span.

A convention is a module with `matches` and `read` (see `Convention`). The order of
`CONVENTIONS` is that of trust: a product's own attributes before the general ones that it also
writes, those of OpenTelemetry last. Of each field the first reading that knows it wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ragmeter.ingest.conventions import (
    agent_frameworks,
    app_frameworks,
    genai_extensions,
    langfuse,
    openinference,
    openllmetry,
    otel_genai,
    platforms,
    vector_databases,
)
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import Span


@dataclass(frozen=True)
class Convention:
    """A named way to write a request into spans.

    `matches` looks at the scope, the names of attributes and events, the first word of the
    span's name and the values of `DECIDING` attributes, and at nothing else: what it says is
    remembered for all spans that are alike in these.

    `read` without `content` may leave out what `Reading.light` names, where there are no documents
    either; all else it says as with it.
    """

    name: str
    matches: Callable[[Span], bool]
    read: Callable[[Span, bool], SpanContent]


DECIDING_ATTRIBUTES = (
    "gen_ai.operation.name",
    "db.system",
    "db.system.name",
    "telemetry.sdk.name",
    "framework",
)


_OPENINFERENCE = Convention(
    "openinference", openinference.matches_openinference, openinference.read_openinference
)
# One line a convention, the most particular first.
CONVENTIONS: tuple[Convention, ...] = (
    Convention("langfuse", langfuse.matches_langfuse, langfuse.read_langfuse),
    Convention("mlflow", platforms.matches_mlflow, platforms.read_mlflow),
    Convention("langsmith", platforms.matches_langsmith, platforms.read_langsmith),
    Convention("vercel_ai", app_frameworks.matches_vercel_ai, app_frameworks.read_vercel_ai),
    Convention("logfire", agent_frameworks.matches_logfire, agent_frameworks.read_logfire),
    Convention("google_adk", agent_frameworks.matches_google_adk, agent_frameworks.read_google_adk),
    Convention("promptflow", platforms.matches_promptflow, platforms.read_promptflow),
    Convention("monocle", platforms.matches_monocle, platforms.read_monocle),
    Convention("haystack", app_frameworks.matches_haystack, app_frameworks.read_haystack),
    Convention("spring_ai", app_frameworks.matches_spring_ai, app_frameworks.read_spring_ai),
    _OPENINFERENCE,
    Convention("openllmetry", openllmetry.matches_openllmetry, openllmetry.read_openllmetry),
    Convention("loongsuite", genai_extensions.matches_loongsuite, genai_extensions.read_loongsuite),
    Convention("gen_ai_task", openllmetry.matches_gen_ai_task, openllmetry.read_gen_ai_task),
    Convention("vector_db", vector_databases.matches_vector_db, vector_databases.read_vector_db),
    Convention(
        "content_events",
        genai_extensions.matches_content_events,
        genai_extensions.read_content_events,
    ),
    Convention("otel_genai", otel_genai.matches_otel_genai, otel_genai.read_otel_genai),
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
                for name in DECIDING_ATTRIBUTES
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


def preview_span(span: Span) -> SpanContent:
    """A reading that may be `light`: `read_span` has to follow for those spans that turn out to
    matter. It takes a third of the time."""
    matching = _conventions(span)
    if matching == _WRAPPING:
        light = openinference.preview_wrapper(span)
        if light is not None:
            return light
    return _read(span, matching, content=False)


_WRAPPING: tuple[Convention, ...] = (_OPENINFERENCE,)


def read_span(span: Span) -> SpanContent:
    """The readings of all conventions that match, joined in the order of `CONVENTIONS`.

    The role is that of the first convention that knows one. Documents are those of the first
    convention that has texts, else the first list at all. A gap counts only where no convention
    has the content.
    """
    return _read(span, _conventions(span), content=True)


def _read(span: Span, matching: tuple[Convention, ...], content: bool) -> SpanContent:
    if not matching:
        return SpanContent()
    first, *others = [convention.read(span, content) for convention in matching]
    for other in others:
        _join(first, other)
    return first


def _join(into: SpanContent, other: SpanContent) -> None:
    if into.role is SpanRole.OTHER:
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


def _join_documents(into: SpanContent, other: SpanContent) -> None:
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
