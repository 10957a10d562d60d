"""The GenAI conventions of OpenTelemetry, old and new, one span at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.ingest.conventions import otel_genai
from ragmeter.ingest.conventions.span_content import ContentGap, SpanContent, SpanRole
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import matches, span

OPERATION = "gen_ai.operation.name"
ASKED = [
    {"role": "user", "parts": [{"type": "text", "content": "old"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "before"}]},
    {"role": "user", "parts": [{"type": "text", "content": "Q"}]},
]
TOLD = [
    {
        "role": "assistant",
        "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "A"}],
        "finish_reason": "stop",
    }
]


def read(attributes: dict[str, Any] | None = None, *events: SpanEvent, **more: Any) -> SpanContent:
    one = span(attributes=attributes or {}, events=list(events), **more)
    assert matches("otel_genai", one)
    return otel_genai.read_otel_genai(one)


@pytest.mark.parametrize(
    ("operation", "role"),
    [
        ("chat", SpanRole.LLM),
        ("text_completion", SpanRole.LLM),
        ("generate_content", SpanRole.LLM),
        ("embeddings", SpanRole.EMBEDDING),
        ("retrieval", SpanRole.RETRIEVER),
        ("search_memory", SpanRole.RETRIEVER),
        ("execute_tool", SpanRole.TOOL),
        ("invoke_agent", SpanRole.CHAIN),
        ("invoke_workflow", SpanRole.CHAIN),
        ("create_agent", SpanRole.OTHER),
    ],
)
def test_operations(operation: str, role: SpanRole) -> None:
    assert read({OPERATION: operation}).role is role


@pytest.mark.parametrize("form", [json.dumps, lambda value: value])
def test_messages_as_text_and_structured(form: Any) -> None:
    """The Python SDK since 1.45 sends lists of maps as they are."""
    reading = read(
        {
            OPERATION: "chat",
            "gen_ai.input.messages": form(ASKED),
            "gen_ai.output.messages": form(TOLD),
            "gen_ai.usage.input_tokens": "11",
            "gen_ai.usage.completion_tokens": 4,
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.model": "gpt-4o-2024",
            "gen_ai.response.time_to_first_chunk": 0.5,
            "gen_ai.conversation.id": "c",
            "user.id": "u",
        }
    )
    assert (reading.query, reading.answer) == ("Q", "A")
    assert (reading.input_tokens, reading.output_tokens) == (11, 4)
    assert (reading.model, reading.session, reading.user) == ("gpt-4o-2024", "c", "u")
    assert reading.first_token_ns == 1_000_000_000_500_000_000


def test_messages_in_a_log_event_of_details() -> None:
    details = SpanEvent(
        "gen_ai.client.inference.operation.details",
        0,
        {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": TOLD},
    )
    reading = read({OPERATION: "chat"}, details)
    assert (reading.query, reading.answer) == ("Q", "A")
    wrapped = SpanEvent(details.name, 0, {"body": json.dumps(details.attributes)})
    reading = read({OPERATION: "chat"}, wrapped)
    assert (reading.query, reading.answer) == ("Q", "A")


@pytest.mark.parametrize(
    ("user", "choice"),
    [
        # as span events, with attributes
        ({"content": "Q"}, {"message": '{"role": "assistant", "content": "A"}'}),
        ({"role": "user", "content": '[{"type": "text", "text": "Q"}]'}, {"message": "A"}),
        # as log events, the body laid over the attributes
        ({"gen_ai.system": "x", "content": "Q"}, {"index": 0, "message": {"content": "A"}}),
        ({"body": {"content": "Q"}}, {"body": {"message": {"role": "assistant", "content": "A"}}}),
        (
            {"gen_ai.event.content": '{"content": "Q"}'},
            {"gen_ai.event.content": '{"content": "A"}'},
        ),
    ],
)
def test_the_events_of_before(user: dict[str, Any], choice: dict[str, Any]) -> None:
    reading = read(
        {"gen_ai.system": "openai", "gen_ai.request.model": "m"},
        SpanEvent("gen_ai.system.message", 0, {"content": "be kind"}),
        SpanEvent("gen_ai.user.message", 0, {"content": "old"}),
        SpanEvent("gen_ai.assistant.message", 0, {"content": "before"}),
        SpanEvent("gen_ai.user.message", 0, user),
        SpanEvent("gen_ai.choice", 0, choice),
    )
    assert (reading.role, reading.query, reading.answer) == (SpanRole.LLM, "Q", "A")


def test_one_text_in_and_one_out() -> None:
    reading = read(
        {OPERATION: "chat"},
        SpanEvent("gen_ai.content.prompt", 0, {"gen_ai.prompt": "system: be kind\nuser: Q"}),
        SpanEvent("gen_ai.content.completion", 0, {"gen_ai.completion": "A"}),
    )
    assert (reading.query, reading.answer) == ("Q", "A")


def test_calls_that_only_ask_for_tools() -> None:
    calls = [{"role": "assistant", "parts": [{"type": "tool_call", "name": "f"}]}]
    for attributes in (
        {"gen_ai.output.messages": json.dumps(calls)},
        {"gen_ai.response.finish_reasons": ["tool_calls"]},
        {"gen_ai.response.finish_reasons": '["tool_use"]'},
    ):
        reading = read({OPERATION: "chat", **attributes})
        assert reading.calls_tools
        assert reading.answer is None
    assert not read({OPERATION: "chat", "gen_ai.response.finish_reasons": ["stop"]}).calls_tools
    choice = SpanEvent("gen_ai.choice", 0, {"message": {"tool_calls": [{"id": "1"}]}})
    assert read({OPERATION: "chat"}, choice).calls_tools


def test_retrieval() -> None:
    reading = read(
        {
            OPERATION: "retrieval",
            "gen_ai.retrieval.query.text": "Q",
            "gen_ai.retrieval.documents": [
                {"id": "a", "score": 0.5},
                {"id": "b", "score": None, "content": "text"},
                {},
            ],
        }
    )
    assert reading.query == "Q"
    found = reading.documents or []
    assert [(one.id, one.score, one.text, one.gap) for one in found] == [
        ("a", 0.5, None, ContentGap.ID_ONLY),
        ("b", None, "text", None),
        ("", None, None, ContentGap.ID_ONLY),
    ]
    assert read({OPERATION: "retrieval"}).documents is None
    assert read({OPERATION: "retrieval", "gen_ai.retrieval.documents": "[]"}).documents == []
    cut = read({OPERATION: "retrieval", "gen_ai.retrieval.documents": '[{"id": "a"}, {"id'})
    assert (cut.documents, cut.documents_gap) == (None, ContentGap.PASSAGES_TRUNCATED)


def test_variables_of_the_prompt() -> None:
    reading = read(
        {
            OPERATION: "chat",
            "gen_ai.prompt.variable.question": "Q",
            "gen_ai.prompt.variable.context": "[1] a\n\n[2] b",
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": "the whole prompt"}]}]
            ),
        }
    )
    assert (reading.query, reading.context) == ("Q", "[1] a\n\n[2] b")


def test_what_is_cut_or_hidden_is_said() -> None:
    reading = read({OPERATION: "chat", "gen_ai.input.messages": '[{"role":"user","parts":[{"ty'})
    assert (reading.query, reading.query_gap) == (None, ContentGap.QUERY_TRUNCATED)
    reading = read({OPERATION: "chat", "gen_ai.output.messages": "[REDACTED]"})
    assert (reading.answer, reading.answer_gap) == (None, ContentGap.HIDDEN)
