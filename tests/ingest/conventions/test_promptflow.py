from __future__ import annotations

import json

from ragmeter.ingest.conventions import platforms
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import matches, span


def read(kind: str, payloads: dict[str, object], **more: object) -> SpanContent:
    events = [
        SpanEvent(f"promptflow.{name}", 0, {"payload": json.dumps(value, indent=2)})
        for name, value in payloads.items()
    ]
    attributes = {"framework": "promptflow", "span_type": kind, **more}
    one = span(attributes=attributes, events=events, scope="promptflow")
    assert matches("promptflow", one)
    return platforms.read_promptflow(one)


def test_a_retrieval() -> None:
    documents = [
        {"document.id": "u1", "document.score": 2.67, "document.content": "# Concepts"},
        {"document.id": "u2", "document.score": 2.56, "document.content": "etc."},
    ]
    found = read(
        "Retrieval",
        {
            "function.inputs": {"query": "inner"},
            "retrieval.query": "When does a job reuse results?",
            "retrieval.documents": documents,
            "function.output": [],
        },
    )
    assert (found.role, found.query) == (SpanRole.RETRIEVER, "When does a job reuse results?")
    assert found.documents is not None
    assert [(one.id, one.score, one.text) for one in found.documents] == [
        ("u1", 2.67, "# Concepts"),
        ("u2", 2.56, "etc."),
    ]


def test_a_flow() -> None:
    found = read(
        "Flow",
        {
            "function.inputs": {"chat_history": [{"inputs": {"q": "old"}}], "question": "q"},
            "function.output": {"answer": "a"},
        },
        session_id="s",
    )
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")
    assert found.session == "s"
    assert read("Tool", {"function.inputs": {"x": "1"}}).role is SpanRole.CHAIN


def test_a_model_call() -> None:
    found = read(
        "LLM",
        {
            "function.inputs": {"messages": [{"role": "user", "content": "q"}]},
            "function.output": {"choices": [{"message": {"role": "assistant", "content": "b"}}]},
            "llm.generated_message": {"content": "a", "role": "assistant", "tool_calls": None},
        },
        **{
            "llm.usage.prompt_tokens": 100,
            "llm.usage.completion_tokens": 80,
            "llm.response.model": "gpt-4",
            "__computed__.cumulative_token_count.prompt": 300,
        },
    )
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.input_tokens, found.output_tokens, found.model) == (100, 80, "gpt-4")


def test_an_evaluation_flow_is_no_request() -> None:
    payloads: dict[str, object] = {"function.inputs": {"question": "q"}}
    assert read("Flow", payloads, **{"referenced.line_run_id": "r"}).role is SpanRole.EVALUATOR


def test_attributes_serve_where_there_are_no_events() -> None:
    one = span(
        attributes={
            "framework": "promptflow",
            "span_type": "Function",
            "inputs": '{"question": "q"}',
            "output": '"a"',
        }
    )
    found = platforms.read_promptflow(one)
    assert (found.query, found.answer) == ("q", "a")


def test_a_retrieval_without_its_own_query() -> None:
    found = read("Retrieval", {"function.inputs": {"query": "q"}})
    assert found.query == "q"


def test_a_model_call_without_its_message() -> None:
    made = {"choices": [{"message": {"role": "assistant", "content": "b"}}]}
    assert read("LLM", {"function.output": made}).answer == "b"


def test_another_products_span_type() -> None:
    assert not matches("promptflow", span(attributes={"span_type": "LLM"}))
    assert not matches("promptflow", span(attributes={"framework": "promptflow"}))
