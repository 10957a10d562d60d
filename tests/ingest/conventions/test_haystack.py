from __future__ import annotations

import json

import pytest
from ragmeter.ingest.conventions import frameworks
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole

from tests.ingest.conventions.samples import matches, span


def component(kind: str, given: object = None, made: object = None) -> SpanContent:
    attributes = {"haystack.component.name": kind.lower(), "haystack.component.type": kind}
    if given is not None:
        attributes["haystack.component.input"] = json.dumps(given)
    if made is not None:
        attributes["haystack.component.output"] = json.dumps(made)
    one = span("haystack.component.run", attributes=attributes, scope="haystack")
    assert matches("haystack", one)
    return frameworks.read_haystack(one)


def pipeline(given: object, made: object) -> SpanContent:
    attributes = {
        "haystack.pipeline.input_data": json.dumps(given),
        "haystack.pipeline.output_data": json.dumps(made),
    }
    one = span("haystack.pipeline.run", attributes=attributes, scope="haystack")
    assert matches("haystack", one)
    return frameworks.read_haystack(one)


DOCUMENTS = {"documents": [{"id": "h1", "content": "Jean lives in Paris", "score": 1.7, "f": "x"}]}


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("InMemoryBM25Retriever", SpanRole.RETRIEVER),
        ("SerperDevWebSearch", SpanRole.RETRIEVER),
        ("TransformersSimilarityRanker", SpanRole.RERANKER),
        ("OpenAIChatGenerator", SpanRole.LLM),
        ("SentenceTransformersTextEmbedder", SpanRole.EMBEDDING),
        ("FaithfulnessEvaluator", SpanRole.EVALUATOR),
        ("DocumentWriter", SpanRole.OTHER),
        ("PromptBuilder", SpanRole.OTHER),
        ("ToolInvoker", SpanRole.TOOL),
        ("Agent", SpanRole.CHAIN),
    ],
)
def test_roles_are_endings_of_class_names(kind: str, role: SpanRole) -> None:
    assert component(kind).role is role


def test_a_retriever() -> None:
    found = component("QdrantEmbeddingRetriever", {"query_embedding": [0.1, 0.2]}, DOCUMENTS)
    assert found.query is None
    assert found.documents is not None
    assert [(one.id, one.text, one.score) for one in found.documents] == [
        ("h1", "Jean lives in Paris", 1.7)
    ]
    found = component("InMemoryBM25Retriever", {"query": "Who?", "top_k": None}, {"documents": []})
    assert (found.query, found.documents) == ("Who?", [])
    # content tracing is off: nothing captured
    assert component("InMemoryBM25Retriever").documents is None


def test_generators() -> None:
    meta = [{"model": "gpt-4o", "usage": {"prompt_tokens": 9, "completion_tokens": 3}}]
    found = component("OpenAIGenerator", {"prompt": "p"}, {"replies": ["Jean."], "meta": meta})
    assert (found.answer, found.model) == ("Jean.", "gpt-4o")
    assert (found.input_tokens, found.output_tokens) == (9, 3)
    message = {"role": "assistant", "content": [{"text": "Jean."}], "meta": meta[0]}
    asked = {"messages": [{"role": "user", "content": [{"text": "Who?"}]}]}
    found = component("OpenAIChatGenerator", asked, {"replies": [message]})
    assert (found.query, found.answer, found.input_tokens) == ("Who?", "Jean.", 9)
    call = {"tool_call": {"tool_name": "f", "arguments": {}}}
    found = component(
        "OpenAIChatGenerator", asked, {"replies": [{"role": "assistant", "content": [call]}]}
    )
    assert found.calls_tools
    assert found.answer is None


def test_a_pipeline() -> None:
    given = {
        "prompt_builder": {"template": "long text", "question": "Who lives in Paris?"},
        "retriever": {"query": "Who lives in Paris?", "top_k": 3},
    }
    found = pipeline(given, {"llm": {"replies": ["Jean."], "meta": [{}]}})
    assert (found.role, found.query) == (SpanRole.CHAIN, "Who lives in Paris?")
    assert found.answer == "Jean."
    # set before the run in older versions
    assert pipeline(given, {}).answer is None


def test_an_answer_builder() -> None:
    answer = {"type": "GeneratedAnswer", "init_parameters": {"data": "Jean.", "query": "q"}}
    made = {"retriever": DOCUMENTS, "answer_builder": {"answers": [answer]}}
    assert pipeline({"retriever": {"query": "q"}}, made).answer == "Jean."


def test_embedders_are_asked_with_a_text() -> None:
    assert pipeline({"text_embedder": {"text": "q"}}, {}).query == "q"


def test_the_retrievers_question_comes_before_other_texts() -> None:
    assert pipeline({"a_router": {"text": "routed"}, "retriever": {"query": "q"}}, {}).query == "q"


def test_outputs_that_are_no_answer() -> None:
    given = {"retriever": {"query": "q"}}
    assert pipeline(given, {"replies": ["Jean."]}).answer == "Jean."
    assert pipeline(given, {"writer": {"documents_written": "3"}}).answer is None
