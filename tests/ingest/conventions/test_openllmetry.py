"""OpenLLMetry, one span at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.ingest.conventions import openllmetry, read_span
from agent.ingest.conventions.reading import Gap, Reading, Role
from agent.ingest.spans import Event
from tests.ingest.conventions.samples import span

NODES = json.dumps(
    [json.dumps({"node": {"id_": "a", "text": "text", "metadata": {"p": 1}}, "score": 0.5})]
)
DOCUMENTS = json.dumps({"documents": [{"page_content": "text", "metadata": {"p": 1}}], "count": 1})


def entity(name: str, kind: str = "task", **more: Any) -> Reading:
    attributes = {"traceloop.span.kind": kind, "traceloop.entity.name": name}
    for key in ("input", "output"):
        if key in more:
            attributes[f"traceloop.entity.{key}"] = more.pop(key)
    one = span(attributes={**attributes, **more})
    assert openllmetry.matches(one)
    return openllmetry.read(one)


@pytest.mark.parametrize(
    ("name", "kind", "role"),
    [
        ("VectorIndexRetriever.task", "task", Role.RETRIEVER),
        ("VectorIndexRetriever.workflow", "workflow", Role.RETRIEVER),
        ("RetrieverQueryEngine.workflow", "workflow", Role.CHAIN),
        ("RetrieverQueryEngine.task", "task", Role.CHAIN),
        ("retrieval_chain.workflow", "workflow", Role.CHAIN),
        ("OpenAIEmbedding.task", "task", Role.EMBEDDING),
        ("SentenceTransformerRerank.task", "task", Role.RERANKER),
        ("SimilarityPostprocessor.task", "task", Role.RERANKER),
        ("search", "tool", Role.TOOL),
        ("agent", "agent", Role.CHAIN),
        ("CompactAndRefine.task", "task", Role.CHAIN),
    ],
)
def test_roles_by_the_name_of_the_entity(name: str, kind: str, role: Role) -> None:
    assert entity(name, kind).role is role


def test_a_task_that_is_named_for_retrieving_is_one_if_it_gives_documents() -> None:
    for name in ("retrieve", "retrieve_docs", "retrieve_documents.task"):
        assert entity(name, output=DOCUMENTS).role is Role.RETRIEVER
        assert entity(name, output='"done"').role is Role.CHAIN
    assert entity("retrieval_chain", output=DOCUMENTS).role is Role.CHAIN
    assert entity("retrieved", output=DOCUMENTS).role is Role.CHAIN


def test_retrievers_of_langchain_and_llama_index() -> None:
    reading = entity(
        "anything",
        **{"gen_ai.operation.name": "vector_db_retrieve"},
        input='{"query": "Q"}',
        output=DOCUMENTS,
    )
    assert (reading.role, reading.query) == (Role.RETRIEVER, "Q")
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
    assert (cut.documents, cut.documents_gap) == (None, Gap.PASSAGES_TRUNCATED)


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
        events=[Event("llm.content.completion.chunk", n) for n in (7, 8)],
    )
    reading = read_span(one)
    assert (reading.role, reading.query, reading.answer) == (Role.LLM, "Q", "A")
    assert (reading.input_tokens, reading.output_tokens, reading.model) == (5, 2, "m")
    assert reading.first_token_ns == 7
    asks = span(
        attributes={
            "llm.request.type": "chat",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.tool_calls.0.name": "f",
        }
    )
    reading = openllmetry.read(asks)
    assert reading.calls_tools
    assert reading.answer is None
