"""OpenInference (Arize): `openinference.span.kind`, flattened messages and documents.

The spec is spec/semantic_conventions.md of Arize-ai/openinference. Where the sender's limits have
cost a span its kind, the keys that are left tell it. What single instrumentors do otherwise:

- LangChain writes document ids into the retriever's `output.value` only.
- LlamaIndex nests a RETRIEVER without documents in one that has them.
- Haystack (old) calls prompt builders and every unknown component LLM.
- Bedrock's RetrieveAndGenerate is one RETRIEVER with query, cited passages and answer.
"""

from __future__ import annotations

from ragmeter.ingest.conventions.documents import (
    read_documents,
    read_flattened_documents,
    read_metadata,
    read_tool_documents,
)
from ragmeter.ingest.conventions.messages import ChatMessage, last_text_of, read_flattened_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    flattened_items,
    has_flattened_items,
    is_hidden,
    is_truncated_json,
    looks_like_json,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import AttributeValue, Span

KIND = "openinference.span.kind"
_ROLES = {
    "chain": SpanRole.CHAIN,
    "agent": SpanRole.CHAIN,
    "prompt": SpanRole.CHAIN,
    "llm": SpanRole.LLM,
    "embedding": SpanRole.EMBEDDING,
    "retriever": SpanRole.RETRIEVER,
    "reranker": SpanRole.RERANKER,
    "tool": SpanRole.TOOL,
    "guardrail": SpanRole.TOOL,  # what a model says in there is no answer
    "evaluator": SpanRole.EVALUATOR,
}
_PREFIXES = ("openinference.", "retrieval.documents.", "llm.", "reranker.", "embedding.")
_RETRIEVED, _RERANKED = "retrieval.documents", "reranker.output_documents"


def matches_openinference(span: Span) -> bool:
    attributes = span.attributes
    if KIND in attributes or span.scope.startswith("openinference."):
        return True
    # without its kind: a span that has lost its first attributes, or an application's own
    return any(
        key.startswith(("retrieval.documents.", "llm.output_messages.", "reranker.output_"))
        for key in attributes
    )


def preview_wrapper(span: Span) -> SpanContent | None:
    """What only wraps others, without its content; None for any other span. LangChain sends ten
    of them a request, each with all that is passed through it, and the topmost has what counts."""
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() not in ("CHAIN", "PROMPT"):
        return None
    if has_flattened_items(span.attributes, _RETRIEVED):
        return None
    reading = _about(span, SpanRole.CHAIN)
    reading.light = True
    return reading


def _about(span: Span, role: SpanRole) -> SpanContent:
    reading = SpanContent(role=role, convention="openinference")
    reading.session = scalar_text(span.attributes.get("session.id"))
    reading.user = scalar_text(span.attributes.get("user.id"))
    return reading


def read_openinference(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = _about(span, _role(span))
    reading.tags = _tags(attributes.get("metadata"), attributes.get("tag.tags"))
    reading.prompt_version = scalar_text(attributes.get("llm.prompt_template.version"))
    if content or has_flattened_items(attributes, _RETRIEVED) or not may_defer_content(reading):
        _content(span, reading)
    if reading.role is not SpanRole.EMBEDDING:
        reading.model = (
            scalar_text(attributes.get("llm.response.model_name"))
            or scalar_text(attributes.get("llm.model_name"))
            or scalar_text(attributes.get("llm.request.model_name"))
        )
        reading.input_tokens = parse_count(attributes.get("llm.token_count.prompt"))
        reading.output_tokens = parse_count(attributes.get("llm.token_count.completion"))
        reading.cost_usd = parse_number(attributes.get("llm.cost.total"))
    for event in span.events:
        if event.name == "First Token Stream Event" and event.time > 0:
            reading.first_token_ns = event.time
            break
    return reading


def _role(span: Span) -> SpanRole:
    attributes = span.attributes
    kind = attributes.get(KIND)
    role = _ROLES.get(kind.strip().lower()) if isinstance(kind, str) else None
    if role is SpanRole.LLM and _builds_prompt(span):
        return SpanRole.CHAIN
    if role is not None:
        return role
    for prefix, guess in (
        (_RERANKED, SpanRole.RERANKER),
        (_RETRIEVED, SpanRole.RETRIEVER),
        ("llm.output_messages", SpanRole.LLM),
        ("llm.input_messages", SpanRole.LLM),
        ("llm.token_count", SpanRole.LLM),
        ("embedding.embeddings", SpanRole.EMBEDDING),
    ):
        if has_flattened_items(attributes, prefix):
            return guess
    return SpanRole.OTHER


def _builds_prompt(span: Span) -> bool:
    """A component of Haystack that is called LLM for want of a better kind."""
    if not any(name in span.scope or name in span.name for name in ("haystack", "PromptBuilder")):
        return False
    attributes = span.attributes
    return not any(
        key.startswith(("llm.model_name", "llm.token_count.", "llm.output_messages."))
        for key in attributes
    )


def _content(span: Span, reading: SpanContent) -> None:
    attributes = span.attributes
    role = reading.role
    given, made = attributes.get("input.value"), attributes.get("output.value")
    if role is SpanRole.EMBEDDING:
        return
    if role is SpanRole.LLM:
        _call(span, reading)
        return
    if role is SpanRole.RERANKER:
        reading.query, reading.query_gap = find_question(attributes.get("reranker.query"))
    if reading.query is None:
        reading.query, reading.query_gap = find_question(given)
    if reading.query is None and span.dropped and reading.query_gap is None:
        reading.query_gap = ContentGap.QUERY_TRUNCATED
    if role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        _retrieval(span, reading, made)
    elif role is SpanRole.TOOL:
        reading.documents = read_tool_documents(made)
    else:
        reading.answer, reading.answer_gap = find_answer(made)
        if has_flattened_items(attributes, _RETRIEVED):
            reading.documents, cut = read_flattened_documents(attributes, _RETRIEVED)
            reading.documents_gap = ContentGap.PASSAGES_TRUNCATED if cut else None


def _call(span: Span, reading: SpanContent) -> None:
    """A call of a model: its messages, else `input.value` and `output.value`."""
    attributes = span.attributes
    asked = read_flattened_messages(attributes, "llm.input_messages", "message.")
    told = read_flattened_messages(attributes, "llm.output_messages", "message.")
    reading.query = last_text_of(asked, "user")
    if is_hidden(reading.query):
        reading.query, reading.query_gap = None, ContentGap.HIDDEN
    elif reading.query is None:
        reading.query, reading.query_gap = find_question(attributes.get("input.value"))
    text = _reply(told) or _completion(span)
    reading.calls_tools = text is None and any(turn.tools for turn in told)
    if is_hidden(text):
        reading.answer_gap = ContentGap.HIDDEN
    elif text is not None:
        reading.answer, reading.answer_gap = _answer_in_plain(text)
    elif not reading.calls_tools:
        reading.answer, reading.answer_gap = find_answer(attributes.get("output.value"))
    variables = parse_nested_json(attributes.get("llm.prompt_template.variables"))
    if isinstance(variables, dict):
        for key in ("context", "context_str", "documents"):
            if reading.context is None and isinstance(variables.get(key), str):
                reading.context = scalar_text(variables[key])


def _answer_in_plain(text: str) -> tuple[str | None, ContentGap | None]:
    """The text of a message as it is: an application that answers in JSON means that text, but
    what a user reads is at its key `answer`."""
    if looks_like_json(text):
        found, gap = find_answer(text)
        return (found, gap) if found is not None else (text, None)
    return text, None


def _reply(turns: list[ChatMessage]) -> str | None:
    """The text of the reply; a message without a role is one."""
    text = last_text_of(turns, "assistant")
    if text is None:
        text = next((turn.text for turn in reversed(turns) if turn.text and not turn.role), None)
    return text


def _completion(span: Span) -> str | None:
    for _, item in flattened_items(span.attributes, "llm.choices"):
        text = scalar_text(item.get("completion.text"))
        if text is not None:
            return text
    return None


def _retrieval(span: Span, reading: SpanContent, made: AttributeValue) -> None:
    prefix = _RERANKED if reading.role is SpanRole.RERANKER else _RETRIEVED
    found, cut = read_flattened_documents(span.attributes, prefix)
    if found is None and reading.role is SpanRole.RERANKER:
        found, cut = read_flattened_documents(span.attributes, _RETRIEVED)
    other = read_documents(made) if made is not None and not is_hidden(made) else None
    if isinstance(made, str) and other is not None and not looks_like_json(made):
        other = None
    if found is None:
        found = other
    elif other is not None and len(other) == len(found):
        for mine, its in zip(found, other, strict=True):
            _complete(mine, its)
    reading.documents = found
    if cut or (span.dropped and not found):
        reading.documents_gap = ContentGap.PASSAGES_TRUNCATED
    elif found is None and is_hidden(made):
        reading.documents_gap = ContentGap.HIDDEN
    elif found is None and is_truncated_json(made):
        reading.documents_gap = ContentGap.PASSAGES_TRUNCATED
    if reading.role is SpanRole.RETRIEVER and isinstance(made, str) and not looks_like_json(made):
        # the one span of Bedrock's RetrieveAndGenerate
        reading.answer, reading.answer_gap = find_answer(made)


def _complete(mine: RetrievedDocument, its: RetrievedDocument) -> None:
    """Ids and scores that only the output has. The same place is the same document, unless the
    texts say otherwise."""
    if mine.text is not None and its.text is not None and mine.text != its.text:
        return
    mine.id = mine.id or its.id
    if mine.score is None:
        mine.score, mine.score_kind = its.score, its.score_kind
    if mine.text is None and mine.gap is not ContentGap.HIDDEN and its.text is not None:
        mine.text, mine.gap = its.text, its.gap
    mine.metadata = mine.metadata or its.metadata


def _tags(metadata: AttributeValue, tags: AttributeValue) -> dict[str, str]:
    """The application's own metadata as tags; what LangChain adds of itself is left out."""
    found = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in read_metadata(metadata).items()
        if not key.startswith(("ls_", "lc_", "langgraph_", "checkpoint_"))
    }
    if isinstance(tags, list):
        for name in tags[:16]:
            if isinstance(name, str) and name:
                found.setdefault(f"tag.{name[:64]}", "true")
    return found
