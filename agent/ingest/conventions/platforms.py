"""Tracing platforms with their own attributes: MLflow, LangSmith, Prompt flow and Monocle.

MLflow tracing (2.14 to 3.x) exported over OTLP.

Source: mlflow/mlflow `mlflow/tracing/constant.py` and `mlflow/entities/span.py` (span types, keys),
`mlflow/langchain/langchain_tracer.py` (what the LangChain autolog writes); run: mlflow 3.17.2.
Traps:
- Every attribute is JSON text, so the type of a retriever is `"RETRIEVER"` with the quotes.
- The type UNKNOWN is that of every function with `@mlflow.trace`, also of the root.
- Inputs are the function's arguments under the application's own names.
- A document is `{page_content, metadata, id}`; its id may be in `metadata.chunk_id` or `doc_uri`,
  a score only in the metadata by habit.
- Session and user are trace metadata and not always on a span.
- A trace that MLflow's own scorer made carries the tag `mlflow.trace.sourceScorer`.

LangSmith SDK with OpenTelemetry export (`LANGSMITH_OTEL_ENABLED`), Python and JavaScript.

Source: langchain-ai/langsmith-sdk `python/langsmith/_internal/otel/_otel_exporter.py`. Traps:
- `gen_ai.operation.name` of a retriever run is `embeddings` and of a prompt run `chat`: the real
  kind is `langsmith.span.kind`, so this convention is asked before the general one.
- `gen_ai.prompt` and `gen_ai.completion` are the run's whole inputs and outputs as JSON text.
- `langsmith.trace.session_id` and `session_name` are the project, not a user's session; that is
  in the metadata (`session_id`, `thread_id` or `conversation_id`, the keys LangSmith groups by).
- LangChain adds tags of its own to every step of a chain.
- Chat models are dumped as LangChain's `generations`, messages with `lc` and `kwargs`.

Prompt flow (promptflow-tracing 1.x) of Microsoft.

Source: microsoft/promptflow 6e76ef4, the trace span specification in its documentation and
`promptflow/tracing/_trace.py`, `_retrieval.py`. Traps:
- Content is in events whose attribute `payload` is JSON text; older versions repeat it in the
  attributes `inputs`, `output`, `retrieval.query`.
- A node of type `Tool` is any Python function of the flow, not a tool that a model calls.
- Streams have a second span `Iterated(NAME)` with a link: the reply and the tokens are there.
- Spans with `referenced.line_run_id` are of an evaluation flow.
- `__computed__.cumulative_token_count.*` counts children too and is never added up.

Monocle (monocle_apptrace 0.2 to 0.5).

Source: monocle2ai/monocle 850a609 (the traces in its integration tests; `metamodel/*/_helper.py`,
`common/constants.py`). Traps:
- Content is in span events: `data.input`, `data.output` and `metadata` (tokens).
- Retrieved texts are joined by a blank into ONE string and cut at 100 characters plus "...": one
  document, marked as truncated; never fit for grounding.
- A span of type `retrieval` may be an embedding call whose output is a vector.
- Messages are a list of JSON texts `{"user": "..."}` or of Python's text form `{'user': '...'}`;
  prompts may be cut as documents are.
- `inference.modelapi` and `embedding.modelapi` are the same call again, without content.
- On a failure the output is the exception's message, with `error_code` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    KeyTable,
    add_tag,
    fill_content,
    first_value,
    read_by_keys,
)
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_embedding,
    is_truncated,
    parse_count,
    parse_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_MLFLOW_KEYS = KeyTable(
    convention="mlflow",
    kind=("mlflow.spanType",),
    roles={
        "llm": SpanRole.LLM,
        "chat_model": SpanRole.LLM,
        "chain": SpanRole.CHAIN,
        "agent": SpanRole.CHAIN,
        "workflow": SpanRole.CHAIN,
        "task": SpanRole.CHAIN,
        "unknown": SpanRole.CHAIN,
        "tool": SpanRole.TOOL,
        "retriever": SpanRole.RETRIEVER,
        "reranker": SpanRole.RERANKER,
        "embedding": SpanRole.EMBEDDING,
        "evaluator": SpanRole.EVALUATOR,
        "guardrail": SpanRole.TOOL,
        "parser": SpanRole.OTHER,
        "memory": SpanRole.OTHER,
    },
    unknown=SpanRole.CHAIN,  # custom types are allowed: a span around something
    query=("mlflow.spanInputs",),
    answer=("mlflow.spanOutputs",),
    model=("mlflow.llm.model",),
    session=("session.id", "mlflow.trace.session", "mlflow.traceTag.mlflow.trace.session"),
    user=("user.id", "mlflow.trace.user"),
    tag_prefixes=("mlflow.traceTag.",),
)
_SCORER = ("mlflow.traceTag.mlflow.trace.sourceScorer", "mlflow.trace.sourceScorer")
_FIRST_CHUNK = "mlflow.chunk.item.0"


def matches_mlflow(span: Span) -> bool:
    attributes = span.attributes
    return (
        "mlflow.spanType" in attributes
        or "mlflow.spanInputs" in attributes
        or "mlflow.spanOutputs" in attributes
    )


def read_mlflow(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    if first_value(attributes, _SCORER) is not None:
        return SpanContent(role=SpanRole.EVALUATOR, convention=_MLFLOW_KEYS.convention)
    if "mlflow.spanType" in attributes:
        reading = read_by_keys(_MLFLOW_KEYS, attributes, content)
    else:  # a function's span without a type; another convention may know the role
        reading = read_by_keys(_MLFLOW_KEYS, {**attributes, "mlflow.spanType": "UNKNOWN"}, content)
        reading.role = SpanRole.OTHER
    for one in reading.documents or ():
        if one.score is None:
            for key in ("score", "relevance_score", "similarity_score", "similarity"):
                one.score = parse_number(one.metadata.get(key))
                if one.score is not None:
                    one.score_kind = "similarity"
                    break
    usage = parse_nested_json(attributes.get("mlflow.chat.tokenUsage"))
    if isinstance(usage, dict):
        reading.input_tokens = parse_count(usage.get("input_tokens"))
        reading.output_tokens = parse_count(usage.get("output_tokens"))
    cost = parse_nested_json(attributes.get("mlflow.llm.cost"))
    if isinstance(cost, dict):
        total = parse_number(cost.get("total_cost"))
        reading.cost_usd = total if total is not None and total >= 0 else None
    reading.prompt_version = _prompt(parse_nested_json(attributes.get("mlflow.linkedPrompts")))
    reading.first_token_ns = next(
        (event.time or None for event in span.events if event.name == _FIRST_CHUNK), None
    )
    return reading


def _prompt(linked: Any) -> str | None:
    """The first linked prompt as name@version."""
    if not isinstance(linked, list) or not linked or not isinstance(linked[0], dict):
        return None
    name, version = scalar_text(linked[0].get("name")), scalar_text(linked[0].get("version"))
    return f"{name}@{version}" if name and version else name


_LANGSMITH_KEYS = KeyTable(
    convention="langsmith",
    kind=("langsmith.span.kind",),
    roles={
        "llm": SpanRole.LLM,
        "chain": SpanRole.CHAIN,
        "tool": SpanRole.TOOL,
        "retriever": SpanRole.RETRIEVER,
        "embedding": SpanRole.EMBEDDING,
        "prompt": SpanRole.CHAIN,  # not OTHER: its operation name would make it a model call
        "parser": SpanRole.CHAIN,
    },
    unknown=SpanRole.CHAIN,
    query=("gen_ai.prompt",),
    answer=("gen_ai.completion",),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=(
        "langsmith.metadata.session_id",
        "langsmith.metadata.thread_id",
        "langsmith.metadata.conversation_id",
    ),
    user=("langsmith.metadata.user_id",),
    tags={"langsmith.trace.session_name": "project"},
)

_STEPS = ("seq:step:", "map:key:", "graph:step:")  # LangChain's own: the place in a chain


def matches_langsmith(span: Span) -> bool:
    return "langsmith.span.kind" in span.attributes


def read_langsmith(span: Span, content: bool = True) -> SpanContent:
    reading = read_by_keys(_LANGSMITH_KEYS, span.attributes, content)
    tags = span.attributes.get("langsmith.span.tags")
    if isinstance(tags, str):
        for one in (each.strip() for each in tags.split(",", 32)[:32]):
            if one and not one.startswith(_STEPS):
                add_tag(reading, f"tag.{one}", "true")
    return reading


_PROMPTFLOW_KEYS = KeyTable(
    convention="promptflow",
    kind=("span_type",),
    roles={
        "llm": SpanRole.LLM,
        "assistant": SpanRole.LLM,
        "function": SpanRole.CHAIN,
        "tool": SpanRole.CHAIN,
        "flow": SpanRole.CHAIN,
        "langchain": SpanRole.CHAIN,
        "embedding": SpanRole.EMBEDDING,
        "retrieval": SpanRole.RETRIEVER,
    },
    unknown=SpanRole.CHAIN,
    model=("llm.response.model",),
    input_tokens=("llm.usage.prompt_tokens",),
    output_tokens=("llm.usage.completion_tokens",),
    session=("session_id",),
)
_EVALUATION = ("referenced.line_run_id", "referenced.batch_run_id")


def matches_promptflow(span: Span) -> bool:
    attributes = span.attributes
    return "span_type" in attributes and (
        attributes.get("framework") == "promptflow"
        or span.scope == "promptflow"
        or any(event.name.startswith("promptflow.") for event in span.events)
    )


def read_promptflow(span: Span, content: bool = True) -> SpanContent:
    attributes = span.attributes
    if first_value(attributes, _EVALUATION) is not None:
        return SpanContent(role=SpanRole.EVALUATOR, convention=_PROMPTFLOW_KEYS.convention)
    reading = read_by_keys(_PROMPTFLOW_KEYS, attributes, content)
    if reading.light:
        return reading
    payloads: dict[str, Any] = {
        event.name.removeprefix("promptflow."): event.attributes.get("payload")
        for event in span.events
        if event.name.startswith("promptflow.")
    }
    given = payloads.get("function.inputs")
    made = payloads.get("function.output")
    given = attributes.get("inputs") if given is None else given
    made = attributes.get("output") if made is None else made
    documents = payloads.get("retrieval.documents")
    fill_content(reading, given, made, documents)
    if reading.role is SpanRole.RETRIEVER:
        asked = payloads.get("retrieval.query", attributes.get("retrieval.query"))
        query, gap = find_question(asked)
        if query is not None or gap is not None:
            reading.query, reading.query_gap = query, gap
    elif reading.role is SpanRole.LLM:
        said = payloads.get("llm.generated_message", attributes.get("llm.generated_message"))
        answer, gap = find_answer(said)
        if answer is not None or gap is not None:
            reading.answer, reading.answer_gap = answer, gap
    return reading


_MONOCLE_KEYS = KeyTable(
    convention="monocle",
    kind=("span.type",),
    roles={
        "retrieval": SpanRole.RETRIEVER,
        "inference": SpanRole.LLM,
        "inference.framework": SpanRole.LLM,
        "inference.modelapi": SpanRole.OTHER,
        "embedding": SpanRole.EMBEDDING,
        "embedding.modelapi": SpanRole.EMBEDDING,
        "workflow": SpanRole.CHAIN,
        "generic": SpanRole.CHAIN,
        "agentic.turn": SpanRole.CHAIN,
        "agentic.request": SpanRole.CHAIN,
        "agentic.invocation": SpanRole.CHAIN,
        "agentic.delegation": SpanRole.CHAIN,
        "agentic.tool.invocation": SpanRole.TOOL,
        "agentic.mcp.invocation": SpanRole.TOOL,
    },
    session=("scope.agentic.session", "scope.session_id", "scope.session.id"),
    tags={"workflow.name": "workflow"},
)
_QUESTION_EVENT = ("user", "human")
_ANSWER_EVENT = ("assistant", "ai", "AIMessage")
_ENTITIES = 8  # of one span; real ones have 4


def matches_monocle(span: Span) -> bool:
    attributes = span.attributes
    return "span.type" in attributes and (
        "monocle_apptrace.version" in attributes
        or "entity.1.type" in attributes
        or "workflow.name" in attributes
        or any(event.name in ("data.input", "data.output") for event in span.events)
    )


def read_monocle(span: Span, content: bool = True) -> SpanContent:
    """Always whole: what was said tells what the span is and whether it failed."""
    attributes = span.attributes
    reading = read_by_keys(_MONOCLE_KEYS, attributes)
    events: dict[str, Mapping[str, Any]] = {event.name: event.attributes for event in span.events}
    given, made = events.get("data.input", {}), events.get("data.output", {})
    usage = events.get("metadata", {})
    query, query_gap = _read_side(given, "input", _QUESTION_EVENT, ContentGap.QUERY_TRUNCATED)
    answer, answer_gap = _read_side(made, "response", _ANSWER_EVENT, ContentGap.ANSWER_TRUNCATED)
    kinds = [scalar_text(attributes.get(f"entity.{n}.type")) or "" for n in range(1, _ENTITIES + 1)]
    if reading.role is SpanRole.RETRIEVER:
        raw = made.get("response")
        if is_embedding(raw) or (
            not any(kind.startswith("vectorstore") for kind in kinds)
            and any(kind.startswith("model.embedding") for kind in kinds)
        ):
            reading.role = SpanRole.EMBEDDING
            return reading
        reading.query, reading.query_gap = query, query_gap
        text = scalar_text(raw)
        if text is not None:
            gap = ContentGap.PASSAGES_TRUNCATED if is_truncated(text) else None
            reading.documents, reading.documents_gap = [RetrievedDocument(text=text, gap=gap)], gap
            reading.context = None if gap else text
    elif reading.role in (SpanRole.LLM, SpanRole.CHAIN, SpanRole.TOOL):
        reading.query, reading.query_gap = query, query_gap
        reading.answer, reading.answer_gap = answer, answer_gap
        reading.input_tokens = parse_count(usage.get("prompt_tokens"))
        reading.output_tokens = parse_count(usage.get("completion_tokens"))
        reading.calls_tools = str(usage.get("finish_type", "")).lower() == "tool_call"
    for n, kind in enumerate(kinds, start=1):
        if kind.startswith("model.llm"):
            reading.model = scalar_text(attributes.get(f"entity.{n}.name"))
    code = scalar_text(made.get("error_code"))
    if code is not None and code.lower() not in ("success", "ok", "200"):
        reading.failed, reading.error_type = True, code
        reading.error = answer
        reading.answer, reading.answer_gap = None, None
    return reading


def _read_side(
    event: Mapping[str, Any], key: str, roles: tuple[str, ...], truncated: ContentGap
) -> tuple[str | None, ContentGap | None]:
    """What one side said: at `key`, or at the name of its role (version 0.2)."""
    value: Any = event.get(key)
    if value is None:
        value = next((event[role] for role in roles if event.get(role)), None)
    value = parse_nested_json(value)
    if isinstance(value, str):
        value = parse_literal(value)
    texts = []
    for item in value[-64:] if isinstance(value, list) else [value]:
        item = parse_nested_json(item)
        if isinstance(item, str):
            item = parse_literal(item)
        if isinstance(item, dict):
            texts += [text for role in roles if (text := scalar_text(item.get(role)))]
        elif isinstance(item, str):
            texts.append(item)
    if texts:
        find = find_question if truncated is ContentGap.QUERY_TRUNCATED else find_answer
        text, gap = find(texts[-1])
        # prompts are cut at any length: "Use the following pieces of retrieved ... "
        if text is not None and find is find_question and text.rstrip().endswith("..."):
            gap = truncated
        return text, gap
    return None, None
