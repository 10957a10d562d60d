from __future__ import annotations

import json

from ragmeter.ingest.conventions import platforms
from ragmeter.ingest.conventions.registry import matching_conventions
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import span


def read(
    kind: str | None, given: object = None, made: object = None, **more: object
) -> SpanContent:
    attributes = {"mlflow.traceRequestId": '"tr-1"', **more}
    if kind is not None:
        attributes["mlflow.spanType"] = json.dumps(kind)
    if given is not None:
        attributes["mlflow.spanInputs"] = json.dumps(given)
    if made is not None:
        attributes["mlflow.spanOutputs"] = json.dumps(made)
    one = span(attributes=attributes)
    assert "mlflow" in {each.name for each in matching_conventions(one)}
    return platforms.read_mlflow(one)


def test_a_retriever() -> None:
    found = read(
        "RETRIEVER",
        "what?",
        [
            {"page_content": "a", "metadata": {"doc_uri": "x.md", "relevance_score": 0.5}},
            {"page_content": "b", "metadata": {"chunk_id": "c2", "doc_uri": "x.md"}, "id": None},
            {"page_content": "c", "metadata": {}, "id": "d3"},
        ],
    )
    assert found.role is SpanRole.RETRIEVER
    assert found.query == "what?"
    assert found.documents is not None
    assert [(one.id, one.text, one.score) for one in found.documents] == [
        ("x.md", "a", 0.5),
        ("c2", "b", None),
        ("d3", "c", None),
    ]


def test_nothing_found_is_not_nothing_captured() -> None:
    assert read("RETRIEVER", {"query": "x"}, []).documents == []
    assert read("RETRIEVER", {"query": "x"}).documents is None


def test_a_root_function_of_no_type() -> None:
    found = read("UNKNOWN", {"user_query": "q", "k": 3}, {"answer": "a", "sources": ["s"]})
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")
    found = read(None, {"question": "q"}, "a")  # the role is another convention's to say
    assert (found.role, found.query, found.answer) == (SpanRole.OTHER, "q", "a")


def test_a_chat_model() -> None:
    found = read(
        "CHAT_MODEL",
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]},
        {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
        **{
            "mlflow.chat.tokenUsage": '{"input_tokens": 7, "output_tokens": 3}',
            "mlflow.llm.cost": '{"total_cost": 0.25}',
            "mlflow.llm.model": '"gpt-5"',
            "mlflow.linkedPrompts": '[{"name": "p", "version": "4"}]',
            "session.id": '"s1"',
            "user.id": "u1",
        },
    )
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (7, 3, 0.25)
    assert (found.model, found.prompt_version) == ("gpt-5", "p@4")
    assert (found.session, found.user) == ("s1", "u1")


def test_langchain_models_give_generations() -> None:
    made = {"generations": [[{"text": "a", "message": {"type": "ai", "content": "a"}}]]}
    assert read("CHAT_MODEL", [[{"type": "human", "content": "q"}]], made).answer == "a"
    calls = [{"name": "f", "args": {}}]
    reply = {"role": "assistant", "content": None, "tool_calls": calls}
    found = read(
        "CHAT_MODEL", [[{"type": "human", "content": "q"}]], {"choices": [{"message": reply}]}
    )
    assert found.calls_tools
    assert found.answer is None


def test_the_first_chunk_and_the_scorers_traces() -> None:
    one = span(
        attributes={"mlflow.spanType": '"LLM"'},
        events=[SpanEvent("mlflow.chunk.item.0", 5), SpanEvent("mlflow.chunk.item.1", 6)],
    )
    assert platforms.read_mlflow(one).first_token_ns == 5
    scorer = {"mlflow.traceTag.mlflow.trace.sourceScorer": "Correctness"}
    assert read("CHAIN", "q", "a", **scorer).role is SpanRole.EVALUATOR
