"""Tracing platforms with own attributes: MLflow, LangSmith, Prompt flow, Sentry and others.

`key_tables.yaml` has the sources of each and what to beware of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    RETRIEVER_NAME,
    add_tag,
    fill_content,
    fill_tokens,
    first_value,
    key_table,
    read_by_table,
    recognise_retrieval,
)
from ragmeter.ingest.conventions.openinference import read_openinference
from ragmeter.ingest.conventions.openllmetry import read_openllmetry
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_embedding,
    is_truncated,
    key_set,
    key_spellings,
    parse_cost,
    parse_count,
    parse_json_or_literal,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

_MLFLOW_SCORER = ("mlflow.traceTag.mlflow.trace.sourceScorer", "mlflow.trace.sourceScorer")
_MLFLOW_SCORES = ("score", "relevance_score", "similarity_score", "similarity")
_LANGCHAIN_STEPS = ("seq:step:", "map:key:", "graph:step:")  # the position in a chain
_PROMPTFLOW_EVALUATION = ("referenced.line_run_id", "referenced.batch_run_id")
_CLAUDE_CODE_CACHE = ("cache_read_tokens", "cache_creation_tokens")
_HONEYHIVE_SIDES = ("honeyhive_inputs.", "honeyhive_outputs.")
_MONOCLE_USERS = ("user", "human")
_MONOCLE_ASSISTANTS = ("assistant", "ai", "AIMessage")
_MONOCLE_ENTITIES = 8  # of one span; real ones have 4


def read_mlflow(span: Span, full: bool = True) -> SpanContent:
    """Read a span of MLflow."""
    attributes = span.attributes
    if first_value(attributes, _MLFLOW_SCORER) is not None:
        return SpanContent(role=SpanRole.EVALUATOR, convention="mlflow")
    if "mlflow.spanType" in attributes:
        full = full or RETRIEVER_NAME.search(span.name) is not None  # it may be a retriever
        content = read_by_table(key_table("mlflow"), attributes, full)
        recognise_retrieval(span, content, attributes.get("mlflow.spanOutputs"))
    else:  # a function's span without a type; another convention may know the role
        content = read_by_table(key_table("mlflow"), attributes, full, SpanRole.CHAIN)
        content.role = SpanRole.OTHER
    for document in content.documents or ():
        if document.score is None:
            scores = (parse_number(document.metadata.get(key)) for key in _MLFLOW_SCORES)
            document.score = next((score for score in scores if score is not None), None)
            if document.score is not None:
                document.score_kind = "similarity"
    fill_tokens(content, parse_nested_json(attributes.get("mlflow.chat.tokenUsage")))
    cost = parse_nested_json(attributes.get("mlflow.llm.cost"))
    if isinstance(cost, dict):
        content.cost_usd = parse_cost(cost.get("total_cost"))
    content.prompt_version = _mlflow_prompt(
        parse_nested_json(attributes.get("mlflow.linkedPrompts"))
    )
    content.first_token_ns = next(
        (event.time or None for event in span.events if event.name == "mlflow.chunk.item.0"), None
    )
    return content


def _mlflow_prompt(linked: Any) -> str | None:
    if not isinstance(linked, list) or not linked or not isinstance(linked[0], dict):
        return None
    name = scalar_text(linked[0].get("name"))
    version = scalar_text(linked[0].get("version"))
    return f"{name}@{version}" if name and version else name


def read_langsmith(span: Span, full: bool = True) -> SpanContent:
    """Read a span of LangSmith."""
    content = read_by_table(key_table("langsmith"), span.attributes, full)
    recognise_retrieval(span, content, span.attributes.get("gen_ai.completion"))
    tags = span.attributes.get("langsmith.span.tags")
    if isinstance(tags, str):
        for tag in (item.strip() for item in tags.split(",", 32)[:32]):
            if tag and not tag.startswith(_LANGCHAIN_STEPS):
                add_tag(content, f"tag.{tag}", "true")
    return content


def read_promptflow(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Prompt flow."""
    attributes = span.attributes
    if first_value(attributes, _PROMPTFLOW_EVALUATION) is not None:
        return SpanContent(role=SpanRole.EVALUATOR, convention="promptflow")
    content = read_by_table(key_table("promptflow"), attributes, full)
    if content.light:
        return content
    payloads: dict[str, Any] = {
        event.name.removeprefix("promptflow."): event.attributes.get("payload")
        for event in span.events
        if event.name.startswith("promptflow.")
    }
    input_value = payloads.get("function.inputs")
    output_value = payloads.get("function.output")
    fill_content(
        content,
        attributes.get("inputs") if input_value is None else input_value,
        attributes.get("output") if output_value is None else output_value,
        payloads.get("retrieval.documents"),
    )
    if content.role is SpanRole.RETRIEVER:
        query, gap = find_question(
            payloads.get("retrieval.query", attributes.get("retrieval.query"))
        )
        if query is not None or gap is not None:
            content.query = query
            content.query_gap = gap
    elif content.role is SpanRole.LLM:
        answer, gap = find_answer(
            payloads.get("llm.generated_message", attributes.get("llm.generated_message"))
        )
        if answer is not None or gap is not None:
            content.answer = answer
            content.answer_gap = gap
    return content


def read_sentry(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Sentry's."""
    content = read_by_table(key_table("sentry"), span.attributes, full)
    calls = parse_nested_json(span.attributes.get("gen_ai.response.tool_calls"))
    if content.role is SpanRole.LLM and calls and not content.light and not content.answer:
        content.calls_tools = True
        content.answer = None
    return content


def read_claude_code(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Claude Code, which counts the tokens from the cache and to it apart."""
    content = read_by_table(key_table("claude_code"), span.attributes, full)
    read, written = (parse_count(span.attributes.get(key)) or 0 for key in _CLAUDE_CODE_CACHE)
    if content.input_tokens is not None:
        content.input_tokens += read + written
        content.cached_input_tokens = read or None
    return content


def read_braintrust(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Braintrust."""
    attributes = span.attributes
    table = key_table("braintrust")
    kind = _member(attributes, "braintrust.span_attributes", "type")
    content = read_by_table(table, attributes, full, table.roles.get(kind or "", SpanRole.CHAIN))
    recognise_retrieval(span, content, attributes.get("braintrust.output_json"))
    if content.role is SpanRole.LLM:
        content.model = _member(attributes, "braintrust.metadata", "model")
        fill_tokens(content, parse_nested_json(attributes.get("braintrust.metrics")))
    return content


def _member(attributes: Mapping[str, Any], name: str, key: str) -> str | None:
    opened = parse_nested_json(attributes.get(name))
    return scalar_text(opened.get(key)) if isinstance(opened, dict) else None


def read_honeyhive(span: Span, full: bool = True) -> SpanContent:
    """Read a span of HoneyHive."""
    content = read_by_table(key_table("honeyhive"), span.attributes, full)
    if not content.light:
        sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for key, value in span.attributes.items():
            for prefix, side in zip(_HONEYHIVE_SIDES, sides, strict=True):
                if key.startswith(prefix):
                    side[key.removeprefix(prefix)] = parse_nested_json(value)
        fill_content(content, *(side or None for side in sides))
        recognise_retrieval(span, content, sides[1])
    return content


def read_langtrace(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Langtrace."""
    content = read_by_table(key_table("langtrace"), span.attributes, full)
    fill_tokens(content, parse_nested_json(span.attributes.get("llm.token.counts")))
    return content


def read_traceai(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Future AGI's traceAI."""
    return read_openinference(_respelled(span, key_spellings("traceai")), full)


def read_old_openllmetry(span: Span, full: bool = True) -> SpanContent:
    """Read a span of OpenLLMetry's first attributes, if it is a model call."""
    component = span.attributes.get("runinfo.component")
    if isinstance(component, str) and component.lower() not in key_set("eino_models"):
        return SpanContent()
    return read_openllmetry(_respelled(span, key_spellings("openllmetry")), full)


def _respelled(span: Span, spellings: Mapping[str, str]) -> Span:
    """Return a span with the names of attributes that another reader knows, by their beginnings."""
    attributes = {}
    for key, value in span.attributes.items():
        old = next((one for one in spellings if key.startswith(one)), "")
        attributes[spellings[old] + key.removeprefix(old) if old else key] = value
    return replace(span, attributes=attributes)


def read_monocle(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Monocle; always whole, as its content tells its role and whether it failed."""
    attributes = span.attributes
    content = read_by_table(key_table("monocle"), attributes)
    events: dict[str, Mapping[str, Any]] = {event.name: event.attributes for event in span.events}
    input_event = events.get("data.input", {})
    output_event = events.get("data.output", {})
    query, query_gap = find_question(_monocle_text(input_event, "input", _MONOCLE_USERS))
    # prompts are cut at any length: "Use the following pieces of retrieved ... "
    if query is not None and query.rstrip().endswith("..."):
        query_gap = Reason.QUERY_TRUNCATED
    answer, answer_gap = find_answer(_monocle_text(output_event, "response", _MONOCLE_ASSISTANTS))
    types = [
        scalar_text(attributes.get(f"entity.{n}.type")) or ""
        for n in range(1, _MONOCLE_ENTITIES + 1)
    ]
    if content.role is SpanRole.RETRIEVER:
        response = output_event.get("response")
        if is_embedding(response) or (
            not any(kind.startswith("vectorstore") for kind in types)
            and any(kind.startswith("model.embedding") for kind in types)
        ):
            content.role = SpanRole.EMBEDDING
            return content
        content.query = query
        content.query_gap = query_gap
        text = scalar_text(response)
        if text is not None:
            gap = Reason.PASSAGES_TRUNCATED if is_truncated(text) else None
            content.documents = [RetrievedDocument(text=text, gap=gap)]
            content.documents_gap = gap
            content.context = None if gap else text
    elif content.role in (SpanRole.LLM, SpanRole.CHAIN, SpanRole.TOOL):
        usage = events.get("metadata", {})
        content.query = query
        content.query_gap = query_gap
        content.answer = answer
        content.answer_gap = answer_gap
        fill_tokens(content, usage)
        content.calls_tools = str(usage.get("finish_type", "")).lower() == "tool_call"
    for n, kind in enumerate(types, start=1):
        if kind.startswith("model.llm"):
            content.model = scalar_text(attributes.get(f"entity.{n}.name"))
    code = scalar_text(output_event.get("error_code"))
    if code is not None and code.lower() not in ("success", "ok", "200"):
        content.failed = True
        content.error_type = code
        content.error = answer
        content.answer = None
        content.answer_gap = None
    return content


def _monocle_text(event: Mapping[str, Any], key: str, roles: tuple[str, ...]) -> str | None:
    """Return the last text of an event, which is at `key` or at its role (version 0.2)."""
    value: Any = event.get(key)
    if value is None:
        value = next((event[role] for role in roles if event.get(role)), None)
    value = parse_json_or_literal(value)
    texts: list[str] = []
    for item in value[-64:] if isinstance(value, list) else [value]:
        item = parse_json_or_literal(item)
        if isinstance(item, dict):
            texts += [text for role in roles if (text := scalar_text(item.get(role)))]
        elif isinstance(item, str):
            texts.append(item)
    return texts[-1] if texts else None
