from __future__ import annotations

import json

from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span


def read(attributes: dict[str, AttributeValue], scope: str = "pydantic-ai") -> SpanContent:
    return read_span(span(attributes=attributes, scope=scope))


EVENTS = [
    {"content": "s", "role": "system", "event.name": "gen_ai.system.message"},
    {"content": "q", "role": "user", "event.name": "gen_ai.user.message"},
    {"role": "assistant", "tool_calls": [{"id": "1"}], "event.name": "gen_ai.assistant.message"},
    {"content": "found", "role": "tool", "id": "1", "event.name": "gen_ai.tool.message"},
    {"content": "a", "role": "assistant", "event.name": "gen_ai.assistant.message"},
]


def test_an_agent_run_of_version_1() -> None:
    found = read(
        {
            "agent_name": "helper",
            "model_name": "gpt-5",
            "all_messages_events": json.dumps(EVENTS),
            "final_result": "a!",
        }
    )
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a!")
    assert found.tags == {"agent": "helper"}


def test_an_agent_run_of_later_versions() -> None:
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "q"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "a"}]},
    ]
    found = read(
        {
            "gen_ai.operation.name": "invoke_agent",
            "pydantic_ai.all_messages": json.dumps(messages),
            "final_result": '{"answer": "structured"}',
        }
    )
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "structured")


def test_a_model_call_of_version_1() -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "a"},
        "event.name": "gen_ai.choice",
    }
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 4,
        "events": json.dumps([*EVENTS[:2], choice]),
    }
    found = read(attributes)
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.model, found.input_tokens) == ("gpt-5", 4)
    choice["message"] = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    found = read({**attributes, "events": json.dumps([*EVENTS[:2], choice])})
    assert found.calls_tools
    assert found.answer is None


def test_a_tool() -> None:
    documents = json.dumps([{"text": "a passage"}])
    found = read(
        {
            "gen_ai.tool.name": "retrieve",
            "tool_arguments": '{"query": "q"}',
            "tool_response": documents,
            "logfire.msg": "running tool: retrieve",
        }
    )
    assert (found.role, found.query) == (SpanRole.TOOL, "q")
    assert found.documents is not None
    assert found.documents[0].text == "a passage"


def test_a_client_of_a_model() -> None:
    attributes: dict[str, AttributeValue] = {
        "logfire.msg_template": "Chat Completion with {request_data[model]!r}",
        "request_data": '{"messages": [{"role": "user", "content": "q"}], "model": "m"}',
        "response_data": json.dumps(
            {
                "message": {"role": "assistant", "content": "a"},
                "usage": {"prompt_tokens": 4, "completion_tokens": 2},
            }
        ),
    }
    found = read(attributes, "logfire.openai")
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.input_tokens, found.output_tokens) == (4, 2)
    attributes["response_data"] = '{"combined_chunk_content": "streamed", "chunk_count": 3}'
    assert read(attributes, "logfire.openai").answer == "streamed"


def test_a_pending_span_is_no_span() -> None:
    attributes: dict[str, AttributeValue] = {
        "logfire.msg": "x",
        "logfire.span_type": "pending_span",
        "final_result": "a",
    }
    found = read(attributes)
    assert (found.role, found.answer) == (SpanRole.CHAIN, None)


def test_a_plain_log_line_says_nothing() -> None:
    assert read({"logfire.msg": "hello", "request_data": '{"path": "/"}'}, "logfire").role is (
        SpanRole.OTHER
    )
