from __future__ import annotations

from ragmeter.ingest.conventions import frameworks
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span

STORE: dict[str, AttributeValue] = {
    "spring.ai.kind": "vector_store",
    "db.system": "pg_vector",
    "db.operation.name": "query",
    "db.vector.query.content": "Who lives here?",
    "db.vector.query.top_k": "4",
    "db.collection.name": "vector_store",
}


def test_the_vector_store_is_the_retriever() -> None:
    documents = '["Rue de "Rivoli", Paris", "line\nbreak"]'  # joined without escaping
    found = read_span(span(attributes={**STORE, "db.vector.query.response.documents": documents}))
    assert (found.role, found.query) == (SpanRole.RETRIEVER, "Who lives here?")
    assert found.documents is not None
    assert [one.text for one in found.documents] == ['Rue de "Rivoli", Paris', "line\nbreak"]


def test_documents_that_are_logged_elsewhere_are_not_captured() -> None:
    found = read_span(span(attributes=STORE))
    assert found.role is SpanRole.RETRIEVER
    assert found.documents is None
    found = read_span(span(attributes={**STORE, "db.vector.query.response.documents": "[]"}))
    assert found.documents == []


def test_adding_documents_is_no_retrieval() -> None:
    found = read_span(span(attributes={**STORE, "db.operation.name": "add"}))
    assert found.role is SpanRole.VECTOR_DB  # whose operation is no search
    assert found.query is None


def test_a_client_and_its_conversation() -> None:
    attributes: dict[str, AttributeValue] = {
        "spring.ai.kind": "chat_client",
        "gen_ai.operation.name": "framework",
        "gen_ai.system": "spring_ai",
        "spring.ai.chat.client.user.text": "Who lives here?",
        "spring.ai.chat.client.conversation.id": "default",
    }
    found = frameworks.read_spring_ai(span(attributes=attributes))
    assert (found.role, found.query, found.session) == (SpanRole.CHAIN, "Who lives here?", None)
    attributes["spring.ai.chat.client.conversation.id"] = "c-7"
    assert frameworks.read_spring_ai(span(attributes=attributes)).session == "c-7"


def test_a_model_call_has_numbers_as_text() -> None:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.usage.input_tokens": "11",
        "gen_ai.usage.output_tokens": "7",
        "gen_ai.prompt": '["You are "kind".", "Who lives here?"]',
        "gen_ai.completion": '["Marie."]',
    }
    found = read_span(span(attributes=attributes, scope="org.springframework.boot"))
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "Who lives here?", "Marie.")
    assert (found.input_tokens, found.output_tokens) == (11, 7)
