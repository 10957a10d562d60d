from __future__ import annotations

import json

import pytest
from ragmeter.ingest.conventions import platforms
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import ContentGap, SpanRole

from tests.ingest.conventions.samples import span, wire_spans

OBS = "langfuse.observation."


def test_the_spans_of_its_sdk() -> None:
    generation, root = (read_span(one) for one in wire_spans(SAMPLE))
    assert generation.role is SpanRole.LLM
    assert (generation.query, generation.answer) == ("hello", "what's up?")
    assert (generation.session, generation.user) == ("my-session", "my-user")
    assert (generation.input_tokens, generation.output_tokens) == (123, 456)
    assert generation.cost_usd == pytest.approx(0.0021)
    assert generation.model == "gpt-4o"
    assert generation.prompt_version == "my-prompt@1"
    assert generation.first_token_ns == 1_746_026_930_686_390_000
    assert not generation.failed  # a warning is no failure
    assert generation.tags["tag.tag2"] == "true"
    assert generation.tags["environment"] == "production"
    assert root.role is SpanRole.CHAIN
    assert root.query is None


SAMPLE = "langfuse-langfuse-sdk-generation.otlp.json"


def test_a_retriever_gives_documents_and_no_answer() -> None:
    found = platforms.read_langfuse(
        span(
            "search",
            attributes={
                OBS + "type": "RETRIEVER",  # some senders write it large
                OBS + "input": '{"query": "who?"}',
                OBS + "output": json.dumps([{"page_content": "a", "metadata": {"id": "7"}}, "b"]),
            },
        )
    )
    assert found.role is SpanRole.RETRIEVER
    assert found.query == "who?"
    assert found.answer is None
    assert found.documents is not None
    assert [(one.id, one.text) for one in found.documents] == [("7", "a"), ("", "b")]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("retrieve_context", SpanRole.RETRIEVER),
        ("vector-search", SpanRole.RETRIEVER),
        ("search_documents", SpanRole.RETRIEVER),
        ("format_documents", SpanRole.CHAIN),
    ],
)
def test_a_decorated_function_is_a_retriever_by_its_name_and_output(
    name: str, role: SpanRole
) -> None:
    attributes = {OBS + "type": "span", OBS + "output": '[{"text": "a passage", "id": "1"}]'}
    found = platforms.read_langfuse(span(name, attributes=attributes))
    assert found.role is role
    # ... the name alone is not enough
    attributes = {OBS + "type": "span", OBS + "output": '"the answer"'}
    assert platforms.read_langfuse(span(name, attributes=attributes)).role is SpanRole.CHAIN


def test_the_traces_own_words_win_on_the_root_only() -> None:
    attributes = {
        OBS + "type": "span",
        OBS + "input": '{"args": ["inner"]}',
        "langfuse.trace.input": "outer",
        "langfuse.trace.output": '{"answer": "yes"}',
    }
    root = platforms.read_langfuse(span("app", attributes=attributes))
    child = platforms.read_langfuse(span("step", attributes=attributes, parent_id="2" * 16))
    assert (root.query, root.answer) == ("outer", "yes")
    assert (child.query, child.answer) == ("inner", "yes")


def test_trace_attributes_say_nothing_of_another_span() -> None:
    attributes = {
        "langfuse.trace.name": "t",
        "user.id": "u",
        "session.id": "s",
        "openinference.span.kind": "RETRIEVER",
        "input.value": "q",
        "retrieval.documents.0.document.content": "text",
    }
    found = read_span(span(attributes=attributes, parent_id="2" * 16))
    assert found.role is SpanRole.RETRIEVER
    assert found.documents is not None
    assert found.documents[0].text == "text"


def test_cached_tokens_are_part_of_the_input() -> None:
    usage = '{"input": 100, "input_cached_tokens": 20, "output": 5, "total": 125}'
    found = platforms.read_langfuse(
        span(attributes={OBS + "type": "generation", OBS + "usage_details": usage})
    )
    assert (found.input_tokens, found.output_tokens) == (120, 5)


def test_errors_masks_and_evaluators() -> None:
    attributes = {
        OBS + "type": "generation",
        OBS + "level": "ERROR",
        OBS + "status_message": "timed out",
        OBS + "input": "[REDACTED]",
        OBS + "cost_details": '{"input": 1, "total": 3}',
    }
    found = platforms.read_langfuse(span(attributes=attributes))
    assert found.failed
    assert found.error == "timed out"
    assert found.query_gap is ContentGap.HIDDEN
    assert found.cost_usd == 3
    assert (
        platforms.read_langfuse(span(attributes={OBS + "type": "evaluator"})).role
        is SpanRole.EVALUATOR
    )


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2025-01-01T00:00:00Z", 1_735_689_600_000_000_000),
        ("2025-01-01T00:00:00.5", 1_735_689_600_500_000_000),
        ("1969-01-01T00:00:00Z", None),
        ("tomorrow", None),
        (7, None),
    ],
)
def test_times(text: object, nanoseconds: int | None) -> None:
    assert platforms.parse_iso_nanoseconds(text) == nanoseconds


@pytest.mark.parametrize(("text", "identity"), [("one", "b"), ("two", "")])
def test_another_convention_fills_documents_unless_its_texts_differ(
    text: str, identity: str
) -> None:
    attributes = {
        "langfuse.observation.type": "retriever",
        "langfuse.observation.output": '[{"page_content": "one"}]',
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.content": text,
        "retrieval.documents.0.document.id": "b",
        "retrieval.documents.0.document.score": 0.5,
    }
    documents = read_span(span(attributes=attributes)).documents
    assert documents is not None
    (document,) = documents
    assert (document.text, document.id) == ("one", identity)
    assert document.score == (0.5 if identity else None)
