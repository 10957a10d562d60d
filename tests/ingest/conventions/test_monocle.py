from __future__ import annotations

from ragmeter.ingest.conventions import values
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.reasons import Reason

from tests.ingest.conventions.samples import matches, printed_spans, span


def by_role(name: str) -> dict[SpanRole, SpanContent]:
    """The last reading of each role that holds something."""
    found = {}
    for one in printed_spans(name):
        reading = read_span(one)
        if reading.query or reading.answer or reading.documents:
            found[reading.role] = reading
    return found


def test_haystack() -> None:
    found = by_role("monocle-haystack-metamodel.spans.json")
    question = "What does Rhodes Statue look like?"
    assert {reading.query for reading in found.values()} == {question}
    assert found[SpanRole.RETRIEVER].documents_gap is Reason.PASSAGES_TRUNCATED
    assert found[SpanRole.RETRIEVER].answer is None
    call = found[SpanRole.LLM]
    assert (call.input_tokens, call.output_tokens, call.model) == (2464, 102, "gpt-3.5-turbo")
    assert call.answer == found[SpanRole.CHAIN].answer
    assert (call.answer or "").startswith("The Rhodes Statue, also known as")


def test_langchain() -> None:
    found = by_role("monocle-langchain.spans.json")
    assert found[SpanRole.RETRIEVER].query == "What is Task Decomposition?"
    assert found[SpanRole.RETRIEVER].documents_gap is Reason.PASSAGES_TRUNCATED
    call = found[SpanRole.LLM]
    assert (call.answer or "").startswith("Task Decomposition is a technique")
    assert call.answer_gap is None
    assert call.query_gap is Reason.QUERY_TRUNCATED  # the prompt, not the question
    assert (call.input_tokens, call.output_tokens) == (684, 66)


def test_llama_index() -> None:
    found = by_role("monocle-llama-index.spans.json")
    retrieved = found[SpanRole.RETRIEVER]
    assert retrieved.query == "What did the author do growing up?"
    assert retrieved.documents is not None
    assert [one.text for one in retrieved.documents] == ["this is some sample text"]
    assert retrieved.documents_gap is None
    call = found[SpanRole.LLM]
    assert call.query == "What did the author do growing up?"
    assert (call.answer or "").startswith("The author grew up in a location")


def test_a_vector_is_no_document() -> None:
    found = by_role("monocle-openai-rag.spans.json")
    assert SpanRole.RETRIEVER not in found
    assert SpanRole.EMBEDDING not in found
    assert found[SpanRole.LLM].query == "what is latte?"
    assert (found[SpanRole.LLM].answer or "").startswith("A latte consists of")


def test_python_text_is_read_within_bounds() -> None:
    assert values.parse_literal("{'user': 'it''s'}") == {"user": "its"}
    assert values.parse_literal("['a', \"b\"]") == ["a", "b"]
    assert values.parse_literal("[" * 50_000) == "[" * 50_000
    deep = "['" + "(" * 90_000
    assert values.parse_literal(deep) == deep
    assert values.parse_literal("{'a': __import__('os')}") == "{'a': __import__('os')}"


def test_what_is_no_span_of_monocle() -> None:
    assert not matches("monocle", span(attributes={"span.type": "retrieval"}))
    assert not matches("monocle", span(attributes={"entity.1.type": "x"}))
    assert matches("monocle", span(attributes={"span.type": "x", "workflow.name": "w"}))
    assert values.parse_literal("(1, 2)") == "(1, 2)"
