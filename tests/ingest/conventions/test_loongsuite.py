from __future__ import annotations

import json

from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span


def test_retrieval_and_reranking() -> None:
    documents = json.dumps([{"id": "1", "score": 0.5, "content": "a passage"}])
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "retrieve_documents",
        "gen_ai.span.kind": "RETRIEVER",
        "gen_ai.retrieval.query": "q",
        "gen_ai.retrieval.documents": documents,
    }
    found = read_span(span(attributes=attributes))
    assert (found.role, found.query) == (SpanRole.RETRIEVER, "q")
    assert found.documents is not None
    assert [(one.id, one.text, one.score) for one in found.documents] == [("1", "a passage", 0.5)]
    reranked: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "rerank_documents",
        "gen_ai.rerank.output_documents": documents,
        "gen_ai.rerank.input_documents": '["x", "y"]',
    }
    found = read_span(span(attributes=reranked))
    assert found.role is SpanRole.RERANKER
    assert found.documents is not None
    assert [one.text for one in found.documents] == ["a passage"]


def test_documents_that_are_not_captured() -> None:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.span.kind": "RETRIEVER",
        "gen_ai.retrieval.query": "q",
    }
    assert read_span(span(attributes=attributes)).documents is None


def test_a_model_call() -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    reply = [{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]
    attributes: dict[str, AttributeValue] = {
        "gen_ai.span.kind": "LLM",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(reply),
        "gen_ai.usage.input_tokens": 3,
    }
    found = read_span(span(attributes=attributes))
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert found.input_tokens == 3
