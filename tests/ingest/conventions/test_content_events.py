from __future__ import annotations

import json

import pytest
from ragmeter.ingest.conventions import otel_genai
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.spans import AttributeValue, SpanEvent

from tests.ingest.conventions.samples import span, wire_spans


def test_openlit() -> None:
    (one,) = wire_spans("langfuse-openlit-openai-chat.otlp.json")
    found = read_span(one)
    assert found.role is SpanRole.LLM
    assert found.query == "What is LLM Observability?"
    assert (found.answer or "").startswith("LLM Observability stands for logs")
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (14, 96, 0.000151)
    assert found.user is None


def test_semantic_kernel() -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    reply = [{"role": "assistant", "content": "a"}]
    one = span(
        "chat.completions gpt-4o",
        attributes={"gen_ai.operation.name": "chat.completions", "gen_ai.system": "openai"},
        events=[
            SpanEvent("gen_ai.content.prompt", 1, {"gen_ai.prompt": json.dumps(prompt)}),
            SpanEvent("gen_ai.content.completion", 2, {"gen_ai.completion": json.dumps(reply)}),
        ],
    )
    found = read_span(one)
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")


def test_semantic_kernel_with_log_records() -> None:
    reply = {"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    one = span(
        "chat.completions gpt-4o",
        attributes={"gen_ai.operation.name": "chat.completions", "gen_ai.system": "openai"},
        events=[  # as log events are joined to their span
            SpanEvent("gen_ai.user.message", 1, {"body": '{"role": "user", "content": "q"}'}),
            SpanEvent("gen_ai.choice", 2, {"body": json.dumps(reply)}),
        ],
    )
    found = read_span(one)
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")


@pytest.mark.parametrize(
    ("endpoint", "role"),
    [
        ("framework.retriever.retrieve", SpanRole.RETRIEVER),
        ("framework.query_engine.query", SpanRole.CHAIN),
        ("framework.document.load", SpanRole.CHAIN),
    ],
)
def test_not_all_that_openlit_calls_retrieval_is_one(endpoint: str, role: SpanRole) -> None:
    attributes: dict[str, AttributeValue] = {
        "telemetry.sdk.name": "openlit",
        "gen_ai.operation.name": "retrieve",
        "gen_ai.endpoint": endpoint,
        "gen_ai.prompt": "q",
    }
    found = read_span(span(attributes=attributes))
    assert (found.role, found.query) == (role, "q")
    assert found.documents is None


def test_lines_with_roles() -> None:
    text = "system: be kind\nuser: first\nassistant: yes\nuser: line one\nline: two"
    turns = otel_genai.read_message_lines(text)
    assert [(turn.role, turn.text) for turn in turns] == [
        ("system", "be kind"),
        ("user", "first"),
        ("assistant", "yes"),
        ("user", "line one\nline: two"),
    ]
    assert otel_genai.read_message_lines("a word\nuser: no") == []


def test_a_completion_is_a_model_call_without_an_operation() -> None:
    events = [SpanEvent("gen_ai.content.completion", 1, {"gen_ai.completion": "a"})]
    found = otel_genai.read_content_events(span(events=events))
    assert (found.role, found.answer) == (SpanRole.LLM, "a")
    assert (
        otel_genai.read_content_events(span(attributes={"gen_ai.prompt": "q"})).role
        is SpanRole.OTHER
    )
