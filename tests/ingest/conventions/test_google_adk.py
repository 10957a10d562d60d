from __future__ import annotations

import json

from ragmeter.ingest.conventions import frameworks
from ragmeter.ingest.conventions.registry import matching_conventions
from ragmeter.ingest.conventions.span_content import ContentGap, SpanContent, SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span

CONTENTS = [
    {"role": "user", "parts": [{"text": "first"}]},
    {"role": "model", "parts": [{"function_call": {"name": "search", "args": {}}}]},
    {"role": "user", "parts": [{"function_response": {"name": "search", "response": {}}}]},
]


def call(response: object, contents: object = CONTENTS) -> SpanContent:
    request = {"model": "gemini-3", "config": {}, "contents": contents}
    attributes: dict[str, AttributeValue] = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 5,
        "gcp.vertex.agent.session_id": "s1",
        "gcp.vertex.agent.llm_request": json.dumps(request),
        "gcp.vertex.agent.llm_response": json.dumps(response),
    }
    one = span("call_llm", attributes=attributes, scope="gcp.vertex.agent")
    assert "google_adk" in {each.name for each in matching_conventions(one)}
    return frameworks.read_google_adk(one)


def test_a_model_call() -> None:
    parts = [{"text": "thinking", "thought": True}, {"text": "a"}, {"text": "b"}]
    found = call({"content": {"role": "model", "parts": parts}})
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "first", "ab")
    assert (found.model, found.input_tokens, found.output_tokens) == ("gemini-3", 8, 5)
    assert found.session == "s1"


def test_only_tool_calls() -> None:
    parts = [{"function_call": {"name": "search", "args": {"query": "q"}}}]
    found = call({"content": {"role": "model", "parts": parts}})
    assert found.calls_tools
    assert found.answer is None


def test_grounding_is_in_bytes() -> None:
    answer = "Zürich is a city. It has a lake."
    first = len("Zürich is a city.".encode())
    found = call(
        {
            "content": {"role": "model", "parts": [{"text": answer}]},
            "grounding_metadata": {
                "grounding_chunks": [
                    {"retrieved_context": {"uri": "gs://b/1", "title": "t", "text": "A city."}},
                    {"web": {"uri": "https://example.org", "title": "example.org"}},
                ],
                "grounding_supports": [
                    {"segment": {"end_index": first}, "grounding_chunk_indices": [0]},
                    {
                        "segment": {"start_index": first + 1, "end_index": len(answer.encode())},
                        "grounding_chunk_indices": [1, 7],
                    },
                ],
            },
        }
    )
    assert found.documents is not None
    assert [(one.id, one.text, one.gap) for one in found.documents] == [
        ("gs://b/1", "A city.", None),
        ("https://example.org", None, ContentGap.ID_ONLY),
    ]
    assert [(answer[start:end], ids) for start, end, ids in found.citations] == [
        ("Zürich is a city.", ["gs://b/1"]),
        ("It has a lake.", ["https://example.org"]),
    ]


def test_tools_and_agents() -> None:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "execute_tool",
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.llm_response": "{}",
        "gcp.vertex.agent.tool_call_args": '{"query": "q"}',
        "gcp.vertex.agent.tool_response": '{"results": [{"content": "a passage"}]}',
    }
    found = frameworks.read_google_adk(span("execute_tool search", attributes=attributes))
    assert (found.role, found.query) == (SpanRole.TOOL, "q")
    assert found.documents is not None
    assert found.documents[0].text == "a passage"
    agent = span(
        "invoke_agent helper",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s"},
        scope="gcp.vertex.agent",
    )
    assert "google_adk" in {each.name for each in matching_conventions(agent)}
    assert frameworks.read_google_adk(agent).role is SpanRole.CHAIN
    assert frameworks.read_google_adk(agent).session == "s"


def test_content_that_is_switched_off_is_hidden() -> None:
    attributes: dict[str, AttributeValue] = {
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.llm_response": "{}",
    }
    found = frameworks.read_google_adk(span("call_llm", attributes=attributes))
    assert (found.role, found.query_gap, found.answer_gap) == (
        SpanRole.LLM,
        ContentGap.HIDDEN,
        ContentGap.HIDDEN,
    )


def test_an_error_of_the_model() -> None:
    found = call({"error_code": "RESOURCE_EXHAUSTED", "error_message": "quota"})
    assert found.failed
    assert (found.error_type, found.error) == ("RESOURCE_EXHAUSTED", "quota")
    assert not call({"content": {"parts": [{"text": "a"}]}}).failed


def test_the_question_is_the_users_last_text() -> None:
    contents = [*CONTENTS, {"role": "model", "parts": [{"text": "not the user's"}]}]
    found = call({}, contents)
    assert (found.query, found.answer) == ("first", None)
    assert found.query_gap is None
