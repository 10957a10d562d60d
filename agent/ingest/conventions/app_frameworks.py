"""Application frameworks with their own attributes: Haystack, Spring AI and the Vercel AI SDK.

Haystack's own tracer (haystack-ai 2.x) over OpenTelemetry. Source: deepset-ai/haystack c7cb46c,
`haystack/core/pipeline/pipeline.py`, `haystack/tracing/opentelemetry.py` and `utils.py`,
`dataclasses/document.py`. Traps:
- The role is the class name in `haystack.component.type`; custom classes keep the endings.
- Inputs and outputs are there only with `HAYSTACK_CONTENT_TRACING_ENABLED`, as JSON text, or as
  Python's text form where JSON fails.
- `haystack.pipeline.input_data` is `{component: {input: value}}`. `output_data` may be an empty
  object: older versions set it before the pipeline has run.
- Embedding retrievers get a vector and no query.
- `documents` of a prompt builder or an answer builder were retrieved by other components.
- Documents are flattened: metadata lies beside `id`, `content` and `score`.

Spring AI (1.0 and later; milestones too), through Micrometer. Source: spring-projects/spring-ai
fd3fd6e, `DefaultVectorStoreObservationConvention`, `VectorStoreQueryResponseObservationFilter`
(milestones), the reference manual's page on observability. Traps:
- All values are text, numbers too ("11").
- The retriever is the vector store span: `db.vector.query.content` and, where switched on,
  `db.vector.query.response.documents`. There is no other retrieval span above it.
- Lists are joined without escaping: `["a", "b"]` is JSON only while no text holds a quote or a
  line break. Otherwise it is split at `", "`.
- From 1.0 on prompts, replies and documents go to the application's log and not to the span: then
  the documents are not captured, which is not the same as an empty result.
- The conversation id of an application that sets none is `default`: no session.

The Vercel AI SDK (3.3 to 6) with `experimental_telemetry`. Source: vercel/ai,
content/docs/03-ai-sdk-core/60-telemetry.mdx (early and ef0018f) and
`packages/ai/src/rerank/rerank.ts`. Traps:
- `ai.generateText` is the whole call, `ai.generateText.doGenerate` one request to the model: both
  hold the text and the tokens. Only the inner one is the model call.
- Old names are `ai.result.text`, `ai.stream.msToFirstChunk`, `ai.usage.promptTokens`; newer ones
  `ai.response.text`, `ai.response.msToFirstChunk`, `ai.usage.inputTokens`.
- `ai.prompt` is `{"system", "prompt"}` or `{"messages"}` as JSON text.
- There is no retriever: retrieval is a tool (`ai.toolCall.result`) or in the prompt.
- A reranker's span holds the documents in the old order and a ranking of their indexes.
- The application puts session and user into `metadata`, under names of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS, read_document
from ragmeter.ingest.conventions.key_tables import (
    fill_content,
    fill_documents,
    fill_reply,
    first_value,
    key_table,
    read_by_table,
    read_role,
)
from ragmeter.ingest.conventions.messages import read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_hidden,
    parse_count,
    parse_json_or_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

# searched in a pipeline's outputs before anything else
_HAYSTACK_REPLIES = ("answers", "replies", "reply", "answer", "last_message")
_HAYSTACK_QUESTIONS = frozenset(
    ("query", "question", "messages", "text", "prompt", "input", "user_input")
)
_HAYSTACK_TOKENS = (
    ("input_tokens", ("prompt_tokens", "input_tokens")),
    ("output_tokens", ("completion_tokens", "output_tokens")),
)
_MAX_COMPONENTS = 64  # of one pipeline's inputs or outputs
_SPRING_AI_SCOPES = ("org.springframework.boot", "org.springframework.ai")
_SPRING_AI_QUERY = "db.vector.query.content"
_SPRING_AI_READS = frozenset({"query", "search", "similarity_search", ""})
_MAX_ITEMS = 1_000  # of one joined list
_VERCEL_AI_FIRST_CHUNK = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
_VERCEL_AI_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")


def matches_haystack(span: Span) -> bool:
    """Return whether a span is a component or a pipeline of Haystack."""
    attributes = span.attributes
    return "haystack.component.type" in attributes or (
        span.name.startswith("haystack.")
        and (
            "haystack.pipeline.input_data" in attributes
            or "haystack.pipeline.output_data" in attributes
            or span.scope == "haystack"
        )
    )


def read_haystack(span: Span, full: bool = True) -> SpanContent:
    """Read a component or a pipeline of Haystack."""
    attributes = span.attributes
    content = SpanContent(convention="haystack")
    kind = (scalar_text(attributes.get("haystack.component.type")) or "").lower()
    if kind:
        endings = key_table("haystack").roles.items()
        roles = (role for ending, role in endings if kind.endswith(ending))
        content.role = next(roles, SpanRole.OTHER)
    else:
        content.role = SpanRole.CHAIN
    # the output of a model call holds its model and tokens
    if not full and content.role is SpanRole.CHAIN and defer_content(content):
        return content
    input_key = "haystack.component.input" if kind else "haystack.pipeline.input_data"
    output_key = "haystack.component.output" if kind else "haystack.pipeline.output_data"
    input_value = parse_json_or_literal(attributes.get(input_key))
    output_value = parse_json_or_literal(attributes.get(output_key))
    if not kind:
        _fill_haystack_question(content, input_value)
        _fill_haystack_answer(content, output_value)
    elif content.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        fill_content(
            content,
            input_value.get("query") if isinstance(input_value, dict) else None,
            output_value.get("documents") if isinstance(output_value, dict) else output_value,
        )
    elif content.role is SpanRole.LLM:
        fill_content(content, input_value, None)
        _fill_haystack_call(content, output_value)
    elif content.role in (SpanRole.CHAIN, SpanRole.TOOL):
        fill_content(content, input_value, output_value)
    return content


def _fill_haystack_call(content: SpanContent, output_value: Any) -> None:
    if not isinstance(output_value, dict):
        content.answer, content.answer_gap = find_answer(output_value)
        return
    replies = output_value.get("replies")
    fill_reply(content, replies)
    meta = output_value.get("meta")
    if not meta and isinstance(replies, list) and replies and isinstance(replies[-1], dict):
        meta = replies[-1].get("meta") or replies[-1].get("_meta")
    if isinstance(meta, list):
        meta = meta[0] if meta else None
    if not isinstance(meta, dict):
        return
    content.model = scalar_text(meta.get("model"))
    usage = meta.get("usage")
    if isinstance(usage, dict):
        for field, keys in _HAYSTACK_TOKENS:
            setattr(
                content, field, next((n for k in keys if (n := parse_count(usage.get(k)))), None)
            )


def _fill_haystack_question(content: SpanContent, input_value: Any) -> None:
    if not isinstance(input_value, dict):
        return
    # the retriever's query before a prompt builder's variables and a router's text
    components = list(input_value.items())[:_MAX_COMPONENTS]
    components.sort(key=lambda component: "retriev" not in str(component[0]).lower())
    for _, inputs in components:
        if isinstance(inputs, dict):
            questions = {k: v for k, v in inputs.items() if k in _HAYSTACK_QUESTIONS}
            content.query, content.query_gap = (
                find_question(questions) if questions else (None, None)
            )
        if content.query is not None:
            return
    content.query, content.query_gap = find_question(input_value)


def _fill_haystack_answer(content: SpanContent, output_value: Any) -> None:
    if not isinstance(output_value, dict):
        return
    for key in _HAYSTACK_REPLIES:
        for outputs in list(output_value.values())[:_MAX_COMPONENTS]:
            if isinstance(outputs, dict) and outputs.get(key):
                content.answer, content.answer_gap = _find_generated_answer(outputs[key])
                if content.answer is not None:
                    return
    if any(key in output_value for key in _HAYSTACK_REPLIES):
        content.answer, content.answer_gap = find_answer(output_value)


def _find_generated_answer(value: Any) -> tuple[str | None, ContentGap | None]:
    """Find a reply, also in a `GeneratedAnswer`: {"init_parameters": {"data": ...}}."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = value[0].get("init_parameters", value[0])
        if isinstance(inner, dict) and isinstance(inner.get("data"), str):
            return find_answer(inner["data"])
    return find_answer(value)


def matches_spring_ai(span: Span) -> bool:
    """Return whether a span is one of Spring AI's."""
    attributes = span.attributes
    return (
        "spring.ai.kind" in attributes
        or _SPRING_AI_QUERY in attributes
        or (span.scope in _SPRING_AI_SCOPES and "gen_ai.operation.name" in attributes)
    )


def read_spring_ai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Spring AI."""
    attributes, table = span.attributes, key_table("spring_ai")
    role = read_role(table, attributes)
    if role is SpanRole.OTHER and _SPRING_AI_QUERY in attributes:
        role = SpanRole.RETRIEVER
    content = read_by_table(table, attributes, full, role)
    if content.session == "default":
        content.session = None
    if role is SpanRole.RETRIEVER:
        operation = (scalar_text(attributes.get("db.operation.name")) or "").lower()
        if operation not in _SPRING_AI_READS:  # add, delete: index building
            return SpanContent(role=SpanRole.VECTOR_DB, convention=table.convention)
        documents = attributes.get("db.vector.query.response.documents")
        opened = parse_nested_json(documents)
        if isinstance(opened, str) and not is_hidden(documents):
            content.documents = [RetrievedDocument(text=text) for text in _split_list(opened)]
        else:
            fill_documents(content, documents)
        return content
    if not full and defer_content(content):
        return content
    prompt, completion = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    # the last message of a prompt is the user's
    if content.query is None and prompt is not None:
        content.query = _last_text(prompt, "user")
    if content.answer is None and completion is not None:
        content.answer = _last_text(completion, "assistant")
    return content


def _last_text(value: Any, role: str) -> str | None:
    opened = parse_nested_json(value)
    if isinstance(opened, str):
        texts = _split_list(opened)
        return texts[-1] if texts else None
    messages = read_messages(opened)
    if messages:
        return next((message.text for message in reversed(messages) if message.role == role), None)
    if isinstance(opened, list):
        return next((text for x in reversed(opened) if (text := scalar_text(x))), None)
    return None


def _split_list(text: str) -> list[str]:
    """Return the items of `["a", "b"]` whose quotes are not escaped; other text is one item."""
    text = text.strip()
    if text.startswith('["') and text.endswith('"]'):
        items = text[2:-2].split('", "', _MAX_ITEMS - 1)
        return [item for item in items if item.strip()]
    return [text] if text and text != "[]" else []


def read_vercel_ai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of the Vercel AI SDK."""
    attributes = span.attributes
    operation = scalar_text(attributes.get("ai.operationId")) or ""
    content = read_by_table(key_table("vercel_ai"), attributes, full, _vercel_ai_role(operation))
    for name in _personal_tags():
        content.tags.pop(name, None)
    if content.role in (SpanRole.LLM, SpanRole.CHAIN):
        if not content.light:
            calls = parse_nested_json(first_value(attributes, _VERCEL_AI_CALLS))
            content.calls_tools = bool(calls) and content.answer is None
        wait_ms = parse_number(first_value(attributes, _VERCEL_AI_FIRST_CHUNK))
        if wait_ms is not None and 0 <= wait_ms < 1e9 and span.start:
            content.first_token_ns = span.start + round(wait_ms * 1e6)
    elif content.role is SpanRole.RERANKER:
        content.documents, content.documents_gap = _reranked_documents(span), None
        if content.documents is None and operation == "ai.rerank":
            content.role = SpanRole.OTHER  # the ranking is on the inner span
    return content


@cache
def _personal_tags() -> tuple[str, ...]:
    """Return the metadata that is session or user and must not become a tag."""
    table = key_table("vercel_ai")
    return tuple(key.removeprefix(table.tag_prefixes[0]) for key in (*table.session, *table.user))


def _vercel_ai_role(operation: str) -> SpanRole:
    if operation == "ai.toolCall":
        return SpanRole.TOOL
    if operation.startswith("ai.embed"):
        return SpanRole.EMBEDDING
    if operation.startswith("ai.rerank"):
        return SpanRole.RERANKER
    if operation.endswith((".doGenerate", ".doStream")):
        return SpanRole.LLM
    return SpanRole.CHAIN if operation.startswith(("ai.generate", "ai.stream")) else SpanRole.OTHER


def _reranked_documents(span: Span) -> list[RetrievedDocument] | None:
    """Return the documents in the order of the ranking `[{"index", "relevanceScore"}]`."""
    originals = parse_nested_json(span.attributes.get("ai.documents"))
    ranking = parse_nested_json(span.attributes.get("ai.ranking"))
    if not isinstance(originals, list) or not isinstance(ranking, list):
        return None
    documents = []
    for item in map(parse_nested_json, ranking[:MAX_DOCUMENTS]):
        if not isinstance(item, dict):
            continue
        index = parse_count(item.get("index", item.get("originalIndex")))
        if index is None or index >= len(originals):
            continue
        document = read_document(originals[index])
        if document is not None:
            document.score = parse_number(item.get("relevanceScore", item.get("score")))
            document.score_kind = "" if document.score is None else "similarity"
            documents.append(document)
    return documents
