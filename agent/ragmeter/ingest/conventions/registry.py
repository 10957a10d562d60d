"""The registry of all conventions, and the merged content of every convention that matches a span.

The order of `CONVENTIONS` is that of trust: a product's own attributes come before the general ones
that it writes too, and those of OpenTelemetry come last. For each field the first convention that
has a value wins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ragmeter.ingest.conventions import (
    content_events,
    frameworks,
    functions,
    google_adk,
    haystack,
    langfuse,
    logfire,
    openinference,
    openllmetry,
    otel_genai,
    platforms,
    vector_databases,
    workflows,
)
from ragmeter.ingest.conventions.key_tables import (
    fill_reply,
    first_value,
    key_table,
    matches_table,
    read_by_table,
    recognise_retrieval,
)
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole, has_texts
from ragmeter.ingest.conventions.texts import find_question
from ragmeter.ingest.spans import Span

# The attributes whose values, and not only names, may decide whether a convention matches.
_DECIDING_ATTRIBUTES = (
    "gen_ai.operation.name",
    "db.system",
    "db.system.name",
    "telemetry.sdk.name",
    "framework",
)
_MAX_CACHED = 4_096  # kinds of spans; an application sends some dozens, by the length of its lists
_MAX_NAMES = 256  # of a span whose match is cached
_SCALAR_FIELDS = (
    "context",
    "model",
    "prompt_version",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "cost_usd",
    "first_token_ns",
    "error_type",
    "error",
    "session",
    "user",
)


_Reader = Callable[[Span, bool], SpanContent]


@dataclass(frozen=True)
class Convention:
    """A named way to write a request into spans.

    Args:
        name: Name of the convention and of its table in `key_tables.yaml`.
        reader: Reads the content of a matching span and never raises; None where the table has it
            all. If its second argument is False, it may leave out what `SpanContent.light` lists,
            where there are no documents.
        matcher: Decides on the match instead of the table.
    """

    name: str
    reader: _Reader | None = None
    matcher: Callable[[Span], bool] | None = None

    def matches(self, span: Span) -> bool:
        """Return whether a span follows the convention.

        It may depend on the scope, the names of attributes and events, the first word of the span's
        name and the values of `_DECIDING_ATTRIBUTES` only: the result is cached for all spans that
        are alike in these.
        """
        return self.matcher(span) if self.matcher else matches_table(key_table(self.name), span)

    def read(self, span: Span, full: bool) -> SpanContent:
        """Read the content of a matching span."""
        if self.reader is not None:
            return self.reader(span, full)
        table = key_table(self.name)
        content = read_by_table(table, span.attributes, full)
        if content.role is SpanRole.CHAIN:
            recognise_retrieval(span, content, first_value(span.attributes, table.answer))
        return content


_OPENINFERENCE = Convention("openinference", openinference.read_openinference)
CONVENTIONS: tuple[Convention, ...] = (
    Convention("langfuse", langfuse.read_langfuse),
    Convention("mlflow", platforms.read_mlflow),
    Convention("langsmith", platforms.read_langsmith),
    Convention("vercel_ai", frameworks.read_vercel_ai),
    Convention("logfire", logfire.read_logfire),
    Convention("google_adk", google_adk.read_google_adk),
    Convention("promptflow", platforms.read_promptflow),
    Convention("monocle", platforms.read_monocle),
    Convention("haystack", haystack.read_haystack),
    Convention("spring_ai", frameworks.read_spring_ai),
    Convention("n8n", workflows.read_n8n),
    Convention("langflow", workflows.read_langflow),
    Convention("mastra", workflows.read_mastra),
    Convention("langchain4j", workflows.read_langchain4j),
    _OPENINFERENCE,
    Convention("openllmetry", openllmetry.read_openllmetry),
    Convention("loongsuite"),
    Convention("gen_ai_task"),
    Convention("genkit", frameworks.read_genkit),
    Convention("langwatch"),
    Convention("laminar"),
    Convention("trulens"),
    Convention("braintrust", platforms.read_braintrust),
    Convention("confident"),
    Convention("honeyhive", platforms.read_honeyhive),
    Convention("langtrace", platforms.read_langtrace),
    Convention("traceai", platforms.read_traceai),
    Convention("openllmetry_old", platforms.read_old_openllmetry),
    Convention("livekit", frameworks.read_livekit),
    Convention("voltagent"),
    Convention("cozeloop"),
    Convention("trpc_agent"),
    Convention("eino", frameworks.read_eino),
    Convention("llama_index", frameworks.read_llama_index),
    Convention("truefoundry"),
    Convention("nemo"),
    Convention("agenta", functions.read_agenta),
    Convention("lilypad", functions.read_lilypad),
    Convention("claude_code", platforms.read_claude_code),
    Convention("vector_db", vector_databases.read_vector_db, vector_databases.matches_vector_db),
    Convention("sentry", platforms.read_sentry),
    Convention("pipecat", frameworks.read_pipecat),
    Convention("content_events", content_events.read_content_events),
    Convention("adot", content_events.read_adot, content_events.matches_adot),
    Convention("otel_genai", otel_genai.read_otel_genai),
)
_PLAIN_VALUES = frozenset(("input.value", "output.value"))
PLAIN = Convention("plain", functions.read_plain)
_cached_matches: dict[int, tuple[Convention, ...]] = {}


def preview_span(span: Span) -> SpanContent:
    """Read a span without its question and answer where that saves work.

    This takes a third of the time of `read_span`, which has to follow if the content is `light`
    and the span turns out to matter.
    """
    conventions = matching_conventions(span)
    if conventions == (_OPENINFERENCE,):
        content = openinference.preview_wrapper(span)
        if content is not None:
            return content
    return _read(span, conventions, full=False)


def read_span(span: Span) -> SpanContent:
    """Read a span by all conventions that match and merge what they read.

    The role is that of the first convention that knows one. Documents are those of the first
    convention that has texts, else the first list at all. A gap counts only where no convention
    has the content.
    """
    return _read(span, matching_conventions(span), full=True)


def matching_conventions(span: Span) -> tuple[Convention, ...]:
    """Return the conventions that match a span, in the order of `CONVENTIONS`.

    Asking all conventions costs more than reading by those that match, so the result is cached.
    The key is a hash: names that a sender makes up must not stay in memory.
    """
    attributes = span.attributes
    events = span.events
    if len(attributes) + len(events) > _MAX_NAMES:
        return _find_conventions(span)
    kind = hash(
        (
            span.scope,
            span.name.partition(".")[0],
            *attributes,
            None,  # no name: it separates the names of attributes from those of events
            *[event.name for event in events],
            *[
                value if isinstance(value := attributes[name], str) else type(value)
                for name in _DECIDING_ATTRIBUTES
                if name in attributes  # the names above tell which attribute it is
            ],
        )
    )
    conventions = _cached_matches.get(kind)
    if conventions is None:
        conventions = _find_conventions(span)
        if len(_cached_matches) >= _MAX_CACHED:
            _cached_matches.clear()
        _cached_matches[kind] = conventions
    return conventions


def _find_conventions(span: Span) -> tuple[Convention, ...]:
    found = tuple(convention for convention in CONVENTIONS if convention.matches(span))
    return found or ((PLAIN,) if PLAIN.matches(span) else ())


def _read(span: Span, conventions: tuple[Convention, ...], full: bool) -> SpanContent:
    if not conventions:
        return SpanContent()
    first, *others = [convention.read(span, full) for convention in conventions]
    for other in others:
        _merge(first, other)
    if (
        first.role in (SpanRole.CHAIN, SpanRole.LLM)
        and not first.light
        and not first.calls_tools
        and first.query is None
        and first.answer is None
        and not span.attributes.keys().isdisjoint(_PLAIN_VALUES)
    ):  # the kind by one convention, the texts by another, which alone tells no kind
        if first.role is SpanRole.CHAIN:
            _merge(first, PLAIN.read(span, full))
        else:
            if first.query_gap is None:
                first.query, first.query_gap = find_question(span.attributes.get("input.value"))
            if first.answer_gap is None and "output.value" in span.attributes:
                fill_reply(first, span.attributes["output.value"])
    return first


def _merge(into: SpanContent, other: SpanContent) -> None:
    if into.role is SpanRole.OTHER:
        into.role = other.role
    into.convention = into.convention or other.convention
    if into.query is None:
        into.query = other.query
        into.query_gap = other.query_gap or into.query_gap
    if into.answer is None or (not into.answer and other.answer):
        into.answer = other.answer
        into.answer_gap = other.answer_gap or into.answer_gap
    _merge_documents(into, other)
    for name in _SCALAR_FIELDS:
        if getattr(into, name) is None:
            setattr(into, name, getattr(other, name))
    into.failed = into.failed or other.failed
    into.tags = {**other.tags, **into.tags}
    into.citations = into.citations or other.citations
    into.calls_tools = into.calls_tools or other.calls_tools
    into.light = into.light or other.light


def _merge_documents(into: SpanContent, other: SpanContent) -> None:
    if other.documents is None:
        into.documents_gap = into.documents_gap or other.documents_gap
        return
    if into.documents is None or (has_texts(other.documents) and not has_texts(into.documents)):
        scores = {document.id: document.score for document in into.documents or () if document.id}
        into.documents = [
            replace(document, score=scores[document.id])
            if document.score is None and document.id in scores
            else document
            for document in other.documents
        ]
        into.documents_gap = other.documents_gap
    elif into.documents and len(into.documents) == len(other.documents):
        # the same list in two ways: ids and scores may be in the second only
        for document, same in zip(into.documents, other.documents, strict=True):
            if document.may_be(same):
                document.fill_from(same, text=False, metadata=False)
