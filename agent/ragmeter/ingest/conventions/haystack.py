"""Haystack; `key_tables.yaml` has the sources and what to beware of."""

from __future__ import annotations

from typing import Any

from ragmeter.ingest.conventions.key_tables import (
    fill_content,
    fill_reply,
    fill_tokens,
    key_table,
)
from ragmeter.ingest.conventions.span_content import (
    SpanContent,
    SpanRole,
    defer_content,
)
from ragmeter.ingest.conventions.texts import (
    find_answer,
    find_question,
)
from ragmeter.ingest.conventions.values import (
    parse_json_or_literal,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

# searched in a pipeline's outputs before anything else
_HAYSTACK_REPLIES = ("answers", "replies", "reply", "answer", "last_message")
_HAYSTACK_QUESTIONS = frozenset(
    ("query", "question", "messages", "text", "prompt", "input", "user_input")
)
# Spans of an agent's loop, which have no type of a component, by the type that they stand for.
_AGENT_SPANS = {
    "haystack.agent.run": "agent",
    "haystack.agent.step.llm": "generator",
    "haystack.agent.step.tool": "toolinvoker",
}
_MAX_COMPONENTS = 64  # of one pipeline's inputs or outputs


def read_haystack(span: Span, full: bool = True) -> SpanContent:
    """Read a component or a pipeline of Haystack."""
    attributes = span.attributes
    content = SpanContent(convention="haystack")
    prefix = f"{span.name}." if span.name in _AGENT_SPANS else "haystack.component."
    prefix = prefix.removesuffix("run.")
    kind = scalar_text(attributes.get("haystack.component.type")) or _AGENT_SPANS.get(span.name)
    kind = (kind or "").lower()
    if kind:
        endings = key_table("haystack").roles.items()
        roles = (role for ending, role in endings if kind.endswith(ending))
        content.role = next(roles, SpanRole.OTHER)
    else:
        content.role = SpanRole.CHAIN
    # the output of a model call holds its model and tokens
    if not full and content.role is SpanRole.CHAIN and defer_content(content):
        return content
    input_key = f"{prefix}input" if kind else "haystack.pipeline.input_data"
    output_key = f"{prefix}output" if kind else "haystack.pipeline.output_data"
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
    fill_tokens(content, meta.get("usage"))


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
                answer, content.answer_gap = _find_generated_answer(outputs[key])
                content.answer = content.answer if answer is None else answer
                if content.answer:  # an empty one stays, unless another component has replied
                    return
    if content.answer is not None:
        return
    if any(key in output_value for key in _HAYSTACK_REPLIES):
        content.answer, content.answer_gap = find_answer(output_value)


def _find_generated_answer(value: Any) -> tuple[str | None, Reason | None]:
    """Find a reply, also in a `GeneratedAnswer`: {"init_parameters": {"data": ...}}."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = value[0].get("init_parameters", value[0])
        if isinstance(inner, dict) and isinstance(inner.get("data"), str):
            return find_answer(inner["data"])
    return find_answer(value)
