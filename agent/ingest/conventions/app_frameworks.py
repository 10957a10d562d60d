"""Application frameworks with their own attributes: Haystack, Spring AI and the Vercel AI SDK.

Haystack's own tracer (haystack-ai 2.x) over OpenTelemetry.

Source: deepset-ai/haystack c7cb46c, `haystack/core/pipeline/pipeline.py`,
`haystack/tracing/opentelemetry.py` and `utils.py`, `dataclasses/document.py`. Traps:
- The role is the class name in `haystack.component.type`; custom classes keep the endings.
- Inputs and outputs are there only with `HAYSTACK_CONTENT_TRACING_ENABLED`, as JSON text, or as
  Python's text form where JSON fails.
- `haystack.pipeline.input_data` is `{component: {input: value}}`. `output_data` may be an empty
  object: older versions set it before the pipeline has run.
- Embedding retrievers get a vector and no query.
- `documents` of a prompt builder or an answer builder are what others retrieved.
- Documents are flattened: metadata lies beside `id`, `content` and `score`.

Spring AI (1.0 and later; milestones too), through Micrometer.

Source: spring-projects/spring-ai fd3fd6e, `DefaultVectorStoreObservationConvention`,
`VectorStoreQueryResponseObservationFilter` (milestones), the reference manual's page on
observability. Traps:
- All values are text, numbers too ("11").
- The retriever is the vector store span: `db.vector.query.content` and, where switched on,
  `db.vector.query.response.documents`. There is no other retrieval span above it.
- Lists are joined without escaping: `["a", "b"]` is JSON only while no text holds a quote or a
  line break. Where it is none, it is split at `", "`.
- From 1.0 on prompts, replies and documents go to the application's log and not to the span: then
  the documents are not captured, which is not the same as none found.
- The conversation id of an application that sets none is `default`: no session.

Vercel AI SDK (3.3 to 6) with `experimental_telemetry`.

Source: vercel/ai, content/docs/03-ai-sdk-core/60-telemetry.mdx (early and ef0018f) and
`packages/ai/src/rerank/rerank.ts`. Traps:
- `ai.generateText` is the whole call, `ai.generateText.doGenerate` one request to the model: both
  hold the text and the tokens. Only the inner one is the model call.
- Old names are `ai.result.text`, `ai.stream.msToFirstChunk`, `ai.usage.promptTokens`; newer ones
  `ai.response.text`, `ai.response.msToFirstChunk`, `ai.usage.inputTokens`.
- `ai.prompt` is `{"system", "prompt"}` or `{"messages"}` as JSON text.
- There is no retriever: retrieval is a tool (`ai.toolCall.result`) or in the prompt.
- A reranker's span holds the documents in the old order and a ranking of their indexes.
- Session and user are what the application put into `metadata`, under names of its own.
"""

from __future__ import annotations

from typing import Any

from ragmeter.ingest.conventions.documents import read_document, read_documents
from ragmeter.ingest.conventions.key_tables import (
    KeyTable,
    asks_tools_only,
    fill_content,
    first_value,
    read_by_keys,
)
from ragmeter.ingest.conventions.messages import read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_hidden,
    parse_count,
    parse_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_HAYSTACK_KEYS = KeyTable(convention="haystack")

# by the ending of the class name, the most particular first
_ENDINGS = (
    ("retriever", SpanRole.RETRIEVER),
    ("websearch", SpanRole.RETRIEVER),
    ("ranker", SpanRole.RERANKER),
    ("evaluator", SpanRole.EVALUATOR),
    ("embedder", SpanRole.EMBEDDING),
    ("generator", SpanRole.LLM),
    ("toolinvoker", SpanRole.TOOL),
    ("agent", SpanRole.CHAIN),
    ("pipeline", SpanRole.CHAIN),
)
# searched in a pipeline's outputs before anything else
_REPLIES = ("answers", "replies", "reply", "answer", "last_message")
_MAX_COMPONENTS = 64  # of one pipeline's inputs or outputs


def matches_haystack(span: Span) -> bool:
    return "haystack.component.type" in span.attributes or (
        span.name.startswith("haystack.")
        and (
            "haystack.pipeline.input_data" in span.attributes
            or "haystack.pipeline.output_data" in span.attributes
            or span.scope == "haystack"
        )
    )


def read_haystack(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = read_by_keys(_HAYSTACK_KEYS, attributes)
    kind = (scalar_text(attributes.get("haystack.component.type")) or "").lower()
    if not kind:
        reading.role = SpanRole.CHAIN
        if not content and may_defer_content(reading):
            return reading
        _pipeline(
            reading,
            _opened(attributes.get("haystack.pipeline.input_data")),
            _opened(attributes.get("haystack.pipeline.output_data")),
        )
        return reading
    reading.role = next((role for end, role in _ENDINGS if kind.endswith(end)), SpanRole.OTHER)
    if not content and reading.role is SpanRole.CHAIN and may_defer_content(reading):
        return reading  # a model call has its model and tokens in what it made
    given = _opened(attributes.get("haystack.component.input"))
    made = _opened(attributes.get("haystack.component.output"))
    if reading.role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        asked = given.get("query") if isinstance(given, dict) else None
        found = made.get("documents") if isinstance(made, dict) else made
        fill_content(reading, asked, found)
    elif reading.role is SpanRole.LLM:
        _generator(reading, given, made)
    elif reading.role in (SpanRole.CHAIN, SpanRole.TOOL):
        fill_content(reading, given, made)
    return reading


def _opened(value: Any) -> Any:
    value = parse_nested_json(value)
    return parse_literal(value) if isinstance(value, str) else value


def _generator(reading: SpanContent, given: Any, made: Any) -> None:
    fill_content(reading, given, None)
    if not isinstance(made, dict):
        reading.answer, reading.answer_gap = find_answer(made)
        return
    replies = made.get("replies")
    reading.calls_tools = asks_tools_only(replies)
    if not reading.calls_tools:
        reading.answer, reading.answer_gap = find_answer(replies)
    meta = made.get("meta")
    if not meta and isinstance(replies, list) and replies and isinstance(replies[-1], dict):
        meta = replies[-1].get("meta") or replies[-1].get("_meta")
    if isinstance(meta, list):
        meta = meta[0] if meta else None
    if not isinstance(meta, dict):
        return
    reading.model = scalar_text(meta.get("model"))
    usage = meta.get("usage")
    if isinstance(usage, dict):
        for field, names in (
            ("input_tokens", ("prompt_tokens", "input_tokens")),
            ("output_tokens", ("completion_tokens", "output_tokens")),
        ):
            setattr(
                reading, field, next((n for k in names if (n := parse_count(usage.get(k)))), None)
            )


def _pipeline(reading: SpanContent, given: Any, made: Any) -> None:
    if isinstance(given, dict):
        # the retriever's query before a prompt builder's variables and a router's text
        parts = list(given.items())[:_MAX_COMPONENTS]
        parts.sort(key=lambda part: "retriev" not in str(part[0]).lower())
        for _, inputs in parts:
            if isinstance(inputs, dict):
                asked = {k: v for k, v in inputs.items() if k in _QUESTION_INPUTS}
                reading.query, reading.query_gap = find_question(asked) if asked else (None, None)
            if reading.query is not None:
                break
        if reading.query is None:
            reading.query, reading.query_gap = find_question(given)
    if isinstance(made, dict) and made:
        for key in _REPLIES:
            for outputs in list(made.values())[:_MAX_COMPONENTS]:
                if isinstance(outputs, dict) and outputs.get(key):
                    reading.answer, reading.answer_gap = _reply(outputs[key])
                    if reading.answer is not None:
                        return
        if any(key in made for key in _REPLIES):
            reading.answer, reading.answer_gap = find_answer(made)


_QUESTION_INPUTS = frozenset(
    {"query", "question", "messages", "text", "prompt", "input", "user_input"}
)


def _reply(value: Any) -> tuple[str | None, Any]:
    """A reply, also a `GeneratedAnswer`: {"type": ..., "init_parameters": {"data": ...}}."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = value[0].get("init_parameters", value[0])
        if isinstance(inner, dict) and isinstance(inner.get("data"), str):
            return find_answer(inner["data"])
    return find_answer(value)


_SPRING_AI_KEYS = KeyTable(
    convention="spring_ai",
    kind=("spring.ai.kind",),
    roles={
        "chat_client": SpanRole.CHAIN,
        "advisor": SpanRole.CHAIN,
        "tool_call": SpanRole.TOOL,
        "vector_store": SpanRole.RETRIEVER,
    },
    query=(
        "db.vector.query.content",
        "spring.ai.chat.client.user.text",
        "spring.ai.tool.call.arguments",
    ),
    answer=("spring.ai.tool.call.result",),
    session=("spring.ai.chat.client.conversation.id",),
    tags={"db.collection.name": "collection"},
)
_DOCUMENTS = "db.vector.query.response.documents"
_READS = frozenset({"query", "search", "similarity_search", ""})
_MAX_ITEMS = 1_000  # of one joined list


def matches_spring_ai(span: Span) -> bool:
    attributes = span.attributes
    return (
        "spring.ai.kind" in attributes
        or "db.vector.query.content" in attributes
        or (
            span.scope in ("org.springframework.boot", "org.springframework.ai")
            and "gen_ai.operation.name" in attributes
        )
    )


def read_spring_ai(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    reading = read_by_keys(_SPRING_AI_KEYS, attributes, content)
    if reading.role is SpanRole.OTHER and "db.vector.query.content" in attributes:
        reading = read_by_keys(_SPRING_AI_KEYS, {**attributes, "spring.ai.kind": "vector_store"})
    if reading.session == "default":
        reading.session = None
    if reading.role is SpanRole.RETRIEVER:
        operation = (scalar_text(attributes.get("db.operation.name")) or "").lower()
        if operation not in _READS:  # add, delete: index building
            return SpanContent(role=SpanRole.VECTOR_DB, convention=_SPRING_AI_KEYS.convention)
        _documents(reading, attributes.get(_DOCUMENTS))
        return reading
    if not content and may_defer_content(reading):
        return reading
    prompt, completion = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    # the last message of a prompt is the user's
    if reading.query is None and prompt is not None:
        reading.query = _last(prompt, "user")
    if reading.answer is None and completion is not None:
        reading.answer = _last(completion, "assistant")
    return reading


def _documents(reading: SpanContent, value: Any) -> None:
    if value is None:
        return
    if is_hidden(value):
        reading.documents_gap = ContentGap.HIDDEN
        return
    opened = parse_nested_json(value)
    if not isinstance(opened, str):
        reading.documents = read_documents(opened)
        return
    reading.documents = [RetrievedDocument(text=text) for text in _unjoined(opened)]


def _last(value: Any, role: str) -> str | None:
    opened = parse_nested_json(value)
    if not isinstance(opened, str):
        turns = read_messages(opened)
        if turns:
            return next((turn.text for turn in reversed(turns) if turn.role == role), None)
        if isinstance(opened, list):
            return next((text for x in reversed(opened) if (text := scalar_text(x))), None)
        return None
    texts = _unjoined(opened)
    return texts[-1] if texts else None


def _unjoined(text: str) -> list[str]:
    """The items of `["a", "b"]` whose quotes are not escaped; other text is one item."""
    text = text.strip()
    if text.startswith('["') and text.endswith('"]'):
        items = text[2:-2].split('", "', _MAX_ITEMS - 1)
        return [item for item in items if item.strip()]
    return [text] if text and text != "[]" else []


_META = "ai.telemetry.metadata."
_VERCEL_AI_KEYS = KeyTable(
    convention="vercel_ai",
    query=("ai.prompt.messages", "ai.prompt", "ai.toolCall.args", "ai.toolCall.input"),
    answer=(
        "ai.response.text",
        "ai.result.text",
        "ai.response.object",
        "ai.result.object",
        "ai.toolCall.result",
        "ai.toolCall.output",
    ),
    model=("ai.response.model", "gen_ai.response.model", "ai.model.id"),
    input_tokens=("ai.usage.inputTokens", "ai.usage.promptTokens"),
    output_tokens=("ai.usage.outputTokens", "ai.usage.completionTokens"),
    session=tuple(
        _META + name
        for name in (
            "sessionId",
            "session.id",
            "session_id",
            "langfuseSessionId",
            "chatId",
            "threadId",
            "conversationId",
        )
    ),
    user=tuple(_META + name for name in ("userId", "user.id", "user_id", "langfuseUserId")),
    tags={"ai.telemetry.functionId": "function"},
    tag_prefixes=(_META,),
)
_PERSONAL = tuple(key[len(_META) :] for key in (*_VERCEL_AI_KEYS.session, *_VERCEL_AI_KEYS.user))
_FIRST_CHUNK = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")


def matches_vercel_ai(span: Span) -> bool:
    return "ai.operationId" in span.attributes


def read_vercel_ai(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    operation = scalar_text(attributes.get("ai.operationId")) or ""
    reading = read_by_keys(_KEYS_BY_ROLE[_role(operation)], attributes, content)
    for name in _PERSONAL:  # they are session and user, and no label
        reading.tags.pop(name, None)
    if reading.role in (SpanRole.LLM, SpanRole.CHAIN):
        if not reading.light:
            calls = parse_nested_json(
                first_value(attributes, ("ai.response.toolCalls", "ai.result.toolCalls"))
            )
            reading.calls_tools = bool(calls) and reading.answer is None
        wait = parse_number(first_value(attributes, _FIRST_CHUNK))
        if wait is not None and 0 <= wait < 1e9 and span.start:
            reading.first_token_ns = span.start + round(wait * 1e6)
    elif reading.role is SpanRole.RERANKER:
        reading.documents = _reranked(span)
        if reading.documents is None and operation == "ai.rerank":
            reading.role = SpanRole.OTHER  # the ranking is on the inner span
    return reading


def _role(operation: str) -> SpanRole:
    if operation == "ai.toolCall":
        return SpanRole.TOOL
    if operation.startswith("ai.embed"):
        return SpanRole.EMBEDDING
    if operation.startswith("ai.rerank"):
        return SpanRole.RERANKER
    if operation.endswith((".doGenerate", ".doStream")):
        return SpanRole.LLM
    return SpanRole.CHAIN if operation.startswith(("ai.generate", "ai.stream")) else SpanRole.OTHER


def _keys(role: SpanRole) -> KeyTable:
    return KeyTable(
        convention=_VERCEL_AI_KEYS.convention,
        kind=("ai.operationId",),
        unknown=role,
        query=_VERCEL_AI_KEYS.query,
        answer=() if role is SpanRole.RERANKER else _VERCEL_AI_KEYS.answer,
        model=_VERCEL_AI_KEYS.model,
        input_tokens=_VERCEL_AI_KEYS.input_tokens,
        output_tokens=_VERCEL_AI_KEYS.output_tokens,
        session=_VERCEL_AI_KEYS.session,
        user=_VERCEL_AI_KEYS.user,
        tags=_VERCEL_AI_KEYS.tags,
        tag_prefixes=_VERCEL_AI_KEYS.tag_prefixes,
    )


_KEYS_BY_ROLE = {
    role: _keys(role)
    for role in (
        SpanRole.TOOL,
        SpanRole.EMBEDDING,
        SpanRole.RERANKER,
        SpanRole.LLM,
        SpanRole.CHAIN,
        SpanRole.OTHER,
    )
}


def _reranked(span: Span) -> list[RetrievedDocument] | None:
    """The documents in the order of the ranking `[{"index", "relevanceScore"}]`."""
    given = parse_nested_json(span.attributes.get("ai.documents"))
    ranking = parse_nested_json(span.attributes.get("ai.ranking"))
    if not isinstance(given, list) or not isinstance(ranking, list):
        return None
    out = []
    for item in ranking[:1_000]:
        item = parse_nested_json(item)
        if not isinstance(item, dict):
            continue
        index = parse_count(item.get("index", item.get("originalIndex")))
        if index is None or index >= len(given):
            continue
        one = read_document(given[index])
        if one is not None:
            score = parse_number(item.get("relevanceScore", item.get("score")))
            one.score, one.score_kind = score, "" if score is None else "similarity"
            out.append(one)
    return out
