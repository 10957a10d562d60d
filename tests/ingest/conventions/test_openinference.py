"""OpenInference, one span at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.ingest.conventions import instrumentors
from ragmeter.ingest.conventions.registry import preview_span, read_span
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import matches, span

KIND = "openinference.span.kind"


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("CHAIN", SpanRole.CHAIN),
        ("agent", SpanRole.CHAIN),
        ("Retriever", SpanRole.RETRIEVER),
        ("RERANKER", SpanRole.RERANKER),
        ("LLM", SpanRole.LLM),
        ("EMBEDDING", SpanRole.EMBEDDING),
        ("TOOL", SpanRole.TOOL),
        ("GUARDRAIL", SpanRole.TOOL),
        ("EVALUATOR", SpanRole.EVALUATOR),
        ("SOMETHING", SpanRole.OTHER),
        (7, SpanRole.OTHER),
    ],
)
def test_kinds_without_regard_to_case(kind: Any, role: SpanRole) -> None:
    assert instrumentors.read_openinference(span(attributes={KIND: kind})).role is role


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("retrieval.documents.9.document.content", SpanRole.RETRIEVER),
        ("reranker.output_documents.0.document.id", SpanRole.RERANKER),
        ("llm.output_messages.0.message.content", SpanRole.LLM),
    ],
)
def test_a_lost_kind_is_guessed(key: str, role: SpanRole) -> None:
    one = span(attributes={key: "x"})
    assert matches("openinference", one)
    assert instrumentors.read_openinference(one).role is role


def test_a_call() -> None:
    reading = instrumentors.read_openinference(
        span(
            attributes={
                KIND: "LLM",
                "llm.model_name": "gpt-4o",
                "llm.request.model_name": "gpt",
                "llm.token_count.prompt": "12",
                "llm.token_count.completion": 3.0,
                "llm.cost.total": 0.25,
                "llm.prompt_template.version": "v3",
                "llm.prompt_template.variables": json.dumps({"context": "C", "question": "Q"}),
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": "Q",
                "llm.output_messages.0.message.content": '{"answer": "A", "ids": [1]}',
                "session.id": "s",
                "user.id": 7,
                "metadata": '{"tenant": "acme", "ls_provider": "x", "paid": true}',
                "tag.tags": ["one", 2],
            },
            events=[SpanEvent("First Token Stream Event", 5)],
        )
    )
    assert (reading.query, reading.answer, reading.context) == ("Q", "A", "C")
    assert (reading.input_tokens, reading.output_tokens, reading.cost_usd) == (12, 3, 0.25)
    assert (reading.model, reading.prompt_version, reading.first_token_ns) == ("gpt-4o", "v3", 5)
    assert (reading.session, reading.user) == ("s", "7")
    assert reading.tags == {"tenant": "acme", "paid": "true", "tag.one": "true"}
    assert not reading.calls_tools


def test_completions_and_calls_without_messages() -> None:
    told = {KIND: "LLM", "llm.choices.0.completion.text": "A"}
    assert instrumentors.read_openinference(span(attributes=told)).answer == "A"
    told = {
        KIND: "LLM",
        "input.value": "Q",
        "output.value": json.dumps({"choices": [{"text": "A"}]}),
    }
    reading = instrumentors.read_openinference(span(attributes=told))
    assert (reading.query, reading.answer) == ("Q", "A")


def test_a_call_that_asks_for_tools_has_no_answer() -> None:
    reading = instrumentors.read_openinference(
        span(
            attributes={
                KIND: "LLM",
                "output.value": '{"content": "", "tool_calls": [1]}',
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
            }
        )
    )
    assert reading.calls_tools
    assert reading.answer is None


def test_ids_and_scores_that_only_the_output_has() -> None:
    output = [
        {"page_content": "a", "id": "1", "score": 0.5},
        {"page_content": "other", "id": "2"},
    ]
    reading = instrumentors.read_openinference(
        span(
            attributes={
                KIND: "RETRIEVER",
                "retrieval.documents.0.document.content": "a",
                "retrieval.documents.1.document.content": "b",
                "output.value": json.dumps({"documents": output}),
            }
        )
    )
    assert reading.documents == [
        RetrievedDocument("1", "a", 0.5, "similarity"),
        RetrievedDocument(text="b"),
    ]


def test_a_retriever_that_hides_or_has_lost_its_documents() -> None:
    def gap(**more: Any) -> ContentGap | None:
        dropped = more.pop("dropped", 0)
        attributes = {KIND: "RETRIEVER", **{k.replace("_", "."): v for k, v in more.items()}}
        reading = instrumentors.read_openinference(span(attributes=attributes, dropped=dropped))
        assert reading.documents is None
        return reading.documents_gap

    assert gap() is None
    assert gap(output_value="__REDACTED__") is ContentGap.HIDDEN
    assert gap(output_value='[{"page_content": "cut he') is ContentGap.PASSAGES_TRUNCATED
    assert gap(dropped=3) is ContentGap.PASSAGES_TRUNCATED


def test_haystacks_prompt_builder_is_no_call() -> None:
    scope = "openinference.instrumentation.haystack"
    attributes = {KIND: "LLM", "output.value": '{"prompt": "p"}'}
    assert (
        instrumentors.read_openinference(span("PromptBuilder", attributes=attributes)).role
        is SpanRole.CHAIN
    )
    assert (
        instrumentors.read_openinference(span("X", attributes=attributes, scope=scope)).role
        is SpanRole.CHAIN
    )
    attributes["llm.model_name"] = "m"
    assert (
        instrumentors.read_openinference(span("X", attributes=attributes, scope=scope)).role
        is SpanRole.LLM
    )


def test_the_otel_names_beside_add_nothing() -> None:
    """`enable_genai_semconv`: documents without ids and scores are there a second time."""
    reading = read_span(
        span(
            attributes={
                KIND: "RETRIEVER",
                "input.value": "Q",
                "retrieval.documents.0.document.content": "a",
                "retrieval.documents.0.document.id": "1",
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.documents": '[{"content": "a", "metadata": {}}]',
            }
        )
    )
    assert reading.role is SpanRole.RETRIEVER
    assert reading.documents == [RetrievedDocument("1", "a")]


def test_a_glance_leaves_out_what_wraps_others() -> None:
    chain = {KIND: "chain", "input.value": "Q", "session.id": "s", "user.id": "u"}
    light = preview_span(span(attributes=chain))
    assert light.light
    assert (light.role, light.query, light.session, light.user) == (SpanRole.CHAIN, None, "s", "u")
    for more in ({KIND: "LLM"}, {KIND: "AGENT"}, {"traceloop.span.kind": "task"}):
        other = preview_span(span(attributes={**chain, **more}))
        assert other.light
        assert other.query is None
    held = span(attributes={**chain, "retrieval.documents.0.document.id": "a"})
    assert preview_span(held) == read_span(held)
    assert preview_span(span(attributes={"a": "b"})) == SpanContent()


@pytest.mark.parametrize("empty", [[], "[]"])
def test_an_empty_list_of_documents_is_nothing_found(empty: Any) -> None:
    attributes = {KIND: "RETRIEVER", "input.value": '{"query": "q"}', "retrieval.documents": empty}
    found = instrumentors.read_openinference(span(attributes=attributes))
    assert (found.documents, found.documents_gap) == ([], None)  # as DSPy has it
    del attributes["retrieval.documents"]
    assert instrumentors.read_openinference(span(attributes=attributes)).documents is None
