"""OpenLLMetry, one span at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.ingest.conventions import instrumentors
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import ContentGap, SpanContent, SpanRole
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import matches, span

NODES = json.dumps(
    [json.dumps({"node": {"id_": "a", "text": "text", "metadata": {"p": 1}}, "score": 0.5})]
)
DOCUMENTS = json.dumps({"documents": [{"page_content": "text", "metadata": {"p": 1}}], "count": 1})


def entity(name: str, kind: str = "task", **more: Any) -> SpanContent:
    attributes = {"traceloop.span.kind": kind, "traceloop.entity.name": name}
    for key in ("input", "output"):
        if key in more:
            attributes[f"traceloop.entity.{key}"] = more.pop(key)
    one = span(attributes={**attributes, **more})
    assert matches("openllmetry", one)
    return instrumentors.read_openllmetry(one)


@pytest.mark.parametrize(
    ("name", "kind", "role"),
    [
        ("VectorIndexRetriever.task", "task", SpanRole.RETRIEVER),
        ("VectorIndexRetriever.workflow", "workflow", SpanRole.RETRIEVER),
        ("RetrieverQueryEngine.workflow", "workflow", SpanRole.CHAIN),
        ("RetrieverQueryEngine.task", "task", SpanRole.CHAIN),
        ("retrieval_chain.workflow", "workflow", SpanRole.CHAIN),
        ("OpenAIEmbedding.task", "task", SpanRole.EMBEDDING),
        ("SentenceTransformerRerank.task", "task", SpanRole.RERANKER),
        ("SimilarityPostprocessor.task", "task", SpanRole.RERANKER),
        ("search", "tool", SpanRole.TOOL),
        ("agent", "agent", SpanRole.CHAIN),
        ("CompactAndRefine.task", "task", SpanRole.CHAIN),
    ],
)
def test_roles_by_the_name_of_the_entity(name: str, kind: str, role: SpanRole) -> None:
    assert entity(name, kind).role is role


def test_a_task_that_is_named_for_retrieving_is_one_if_it_gives_documents() -> None:
    for name in ("retrieve", "retrieve_docs", "retrieve_documents.task"):
        assert entity(name, output=DOCUMENTS).role is SpanRole.RETRIEVER
        assert entity(name, output='"done"').role is SpanRole.CHAIN
    assert entity("retrieval_chain", output=DOCUMENTS).role is SpanRole.CHAIN
    assert entity("retrieved", output=DOCUMENTS).role is SpanRole.CHAIN


def test_retrievers_of_langchain_and_llama_index() -> None:
    reading = entity(
        "anything",
        **{"gen_ai.operation.name": "vector_db_retrieve"},
        input='{"query": "Q"}',
        output=DOCUMENTS,
    )
    assert (reading.role, reading.query) == (SpanRole.RETRIEVER, "Q")
    assert [(one.id, one.text) for one in reading.documents or []] == [("", "text")]
    query = json.dumps({"query_bundle": {"query_str": "Q", "image_path": None}})
    reading = entity("VectorIndexRetriever.task", input=query, output=NODES)
    assert reading.query == "Q"
    assert [(one.id, one.text, one.score) for one in reading.documents or []] == [
        ("a", "text", 0.5)
    ]
    empty = entity("VectorIndexRetriever.task", input=query, output="[]")
    assert (empty.documents, empty.documents_gap) == ([], None)
    off = entity("VectorIndexRetriever.task")
    assert (off.documents, off.documents_gap) == (None, None)
    cut = entity("VectorIndexRetriever.task", output=NODES[:40])
    assert (cut.documents, cut.documents_gap) == (None, ContentGap.PASSAGES_TRUNCATED)


def test_a_workflow() -> None:
    reading = entity(
        "LangGraph.workflow",
        "workflow",
        input=json.dumps({"inputs": {"question": "Q"}, "tags": [], "metadata": {}, "kwargs": {}}),
        output=json.dumps({"outputs": {"answer": "A"}, "kwargs": {"tags": []}}),
        **{
            "traceloop.association.properties.session_id": "s",
            "traceloop.association.properties.user_id": "u",
            "traceloop.association.properties.tenant": "acme",
            "gen_ai.task.status": "failure",
        },
    )
    assert (reading.query, reading.answer) == ("Q", "A")
    assert (reading.session, reading.user, reading.tags) == ("s", "u", {"tenant": "acme"})
    assert reading.failed


def test_a_call_with_the_old_attributes() -> None:
    one = span(
        attributes={
            "llm.request.type": "chat",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "be kind",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "Q",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "A",
            "gen_ai.usage.prompt_tokens": 5,
            "gen_ai.usage.completion_tokens": "2",
            "gen_ai.request.model": "m",
        },
        events=[SpanEvent("llm.content.completion.chunk", n) for n in (7, 8)],
    )
    reading = read_span(one)
    assert (reading.role, reading.query, reading.answer) == (SpanRole.LLM, "Q", "A")
    assert (reading.input_tokens, reading.output_tokens, reading.model) == (5, 2, "m")
    assert reading.first_token_ns == 7
    asks = span(
        attributes={
            "llm.request.type": "chat",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.tool_calls.0.name": "f",
        }
    )
    reading = instrumentors.read_openllmetry(asks)
    assert reading.calls_tools
    assert reading.answer is None
