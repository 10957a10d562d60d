from __future__ import annotations

import json

from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole

from tests.ingest.conventions.samples import span


def read(kind: str, operation: str, given: object, made: object, **more: object) -> SpanContent:
    attributes = {
        "langsmith.span.kind": kind,
        "gen_ai.operation.name": operation,
        "gen_ai.system": "langchain",
        "gen_ai.prompt": json.dumps(given),
        "gen_ai.completion": json.dumps(made),
        **more,
    }
    return read_span(span(attributes=attributes, scope="langsmith"))


def test_a_retriever_is_no_embedding() -> None:
    made = {"documents": [{"page_content": "a", "metadata": {"source": "s"}, "type": "Document"}]}
    found = read("retriever", "embeddings", {"query": "q"}, made)
    assert (found.role, found.query, found.answer) == (SpanRole.RETRIEVER, "q", None)
    assert found.documents is not None
    assert [(one.id, one.text) for one in found.documents] == [("s", "a")]


def test_a_prompt_run_is_no_model_call() -> None:
    made = {"messages": [{"type": "human", "content": "prompt with context"}]}
    assert read("prompt", "chat", {"question": "q"}, made).role is SpanRole.CHAIN


def test_a_chat_model() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"]}
    made = {"generations": [[{"text": "a", "message": {**message, "kwargs": {"content": "a"}}}]]}
    human = {"lc": 1, "id": ["x", "HumanMessage"], "kwargs": {"content": "q"}}
    found = read(
        "llm",
        "chat",
        {"messages": [[human]]},
        made,
        **{
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.request.model": "gpt-5",
        },
    )
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.model, found.input_tokens, found.output_tokens) == ("gpt-5", 5, 2)


def test_a_project_is_no_session() -> None:
    project = {"langsmith.trace.session_id": "p-1", "langsmith.trace.session_name": "prod"}
    found = read("chain", "chain", {"input": "q"}, {"output": "a"}, **project)
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")
    assert found.session is None
    assert found.tags["project"] == "prod"
    thread = {"langsmith.metadata.thread_id": "t-1", "langsmith.span.tags": "rag, eu"}
    found = read("chain", "chain", {"input": "q"}, {"output": "a"}, **thread)
    assert found.session == "t-1"
    assert found.tags == {"tag.rag": "true", "tag.eu": "true"}
