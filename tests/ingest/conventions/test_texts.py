"""JSON opened, questions and answers found, messages of every form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.ingest.conventions.texts import (
    ChatMessage,
    find_answer,
    find_question,
    read_flattened_messages,
    read_messages,
)
from ragmeter.ingest.conventions.values import (
    is_embedding,
    is_hidden,
    is_truncated,
    is_truncated_json,
    looks_like_json,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.reasons import Reason

from tests.tables import each_row

LANGCHAIN = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "HumanMessage"],
    "kwargs": {"content": "Q"},
}


@each_row(
    ("value", "text"),
    [
        ("plain Q", "plain Q"),
        ('"quoted"', "quoted"),
        ("[1] says so", "[1] says so"),
        ({"question": "Q", "context": [{"page_content": "no"}]}, "Q"),
        ({"input": "Q", "chat_history": [{"role": "user", "content": "old"}]}, "Q"),
        ({"str_or_query_bundle": {"query_str": "Q", "embedding": [0.1, 0.2, 0.3]}}, "Q"),
        ({"inputs": {"question": "Q"}, "kwargs": {"name": "x"}}, "Q"),
        ({"args": ["Q", "tenant"], "kwargs": {}}, "Q"),
        ({"args": [], "kwargs": {"query": "Q"}}, "Q"),
        ({"topic": "Q"}, "Q"),
        ({"messages": [[LANGCHAIN]]}, "Q"),
        ({"messages": [{"role": "user", "content": "old"}, {"role": "user", "content": "Q"}]}, "Q"),
        ({"messages": [["system", "be kind"], ["human", "Q"]]}, "Q"),
        ({"contents": [{"role": "user", "parts": [{"text": "Q"}]}]}, "Q"),
        ({"retriever": {"query": "Q"}, "prompt_builder": {"question": "Q"}}, "Q"),
        (json.dumps({"data": json.dumps({"query": "Q"})}), "Q"),
        (["Q1", "Q2"], None),
        ({"questions": ["Q1", "Q2"]}, None),
        ({"args": [], "kwargs": {}}, None),
        ({}, None),
        (None, None),
        ("", None),
        ("[0.5, 0.25, 0.125]", None),
        (True, None),
        (12, "12"),
    ],
)
def test_questions(value: Any, text: str | None) -> None:
    assert find_question(value) == (text, None)
    if not isinstance(value, str):
        assert find_question(json.dumps(value)) == (
            text if value is not True else "true",
            None,
        ) or (value is None or isinstance(value, int))


@each_row(
    ("value", "text"),
    [
        ("plain [1].", "plain [1]."),
        ({"input": "Q", "context": [{"page_content": "no"}], "answer": "A"}, "A"),
        ({"query": "Q", "result": "A", "source_documents": [{"page_content": "no"}]}, "A"),
        ({"response": "A", "metadata": {"x": {"text": "no"}}}, "A"),
        ({"reasoning": "no", "answer": "A"}, "A"),
        ({"messages": [{"type": "human", "content": "Q"}, {"type": "ai", "content": "A"}]}, "A"),
        ({"generations": [[{"text": "A", "message": {"lc": 1}}]]}, "A"),
        ({"choices": [{"message": {"role": "assistant", "content": "A"}}]}, "A"),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "A"}]}]}, "A"),
        ({"role": "assistant", "content": [{"type": "text", "text": "A"}]}, "A"),
        ({"llm": {"replies": ["A", "second"], "meta": [{"model": "m"}]}}, "A"),
        ({"llm": {"replies": [{"_role": "assistant", "_content": [{"text": "A"}]}]}}, "A"),
        ({"answer_builder": {"answers": [{"data": "A", "query": "Q", "meta": {}}]}}, "A"),
        ({"message": {"role": "assistant", "blocks": [{"block_type": "text", "text": "A"}]}}, "A"),
        ([{"page_content": "no", "metadata": {}}], None),
        ([{"content": "no", "meta": {}, "score": 1.0}], None),
        ({"retriever": {"documents": [{"content": "no"}]}}, None),
        ([[0.5, 0.25, 0.125]], None),
    ],
)
def test_answers(value: Any, text: str | None) -> None:
    assert find_answer(value) == (text, None)
    assert find_answer(value if isinstance(value, str) else json.dumps(value)) == (text, None)


def test_what_is_hidden_or_cut_is_said() -> None:
    assert find_question("__REDACTED__") == (None, Reason.CONTENT_HIDDEN)
    assert find_answer({"answer": "__REDACTED__"}) == (None, Reason.CONTENT_HIDDEN)
    assert find_answer("x" * 100 + "...") == ("x" * 100 + "...", Reason.ANSWER_TRUNCATED)
    assert find_answer("x" * 99 + "...")[1] is Reason.ANSWER_TRUNCATED
    assert find_answer("and so on...") == ("and so on...", None)
    # JSON that a limit has cut: a whole string in it is good, half of one is not
    assert find_question('{"query": "whole \\"Q\\"", "context": "cut he') == ('whole "Q"', None)
    assert find_question('{"query": "cut he') == (None, Reason.QUERY_TRUNCATED)
    assert is_truncated_json('{"a": "b')
    assert not is_truncated_json("[1] says so")
    assert not is_hidden("the word redacted")
    assert not is_truncated("short...")


@each_row(
    "message",
    [
        {"role": "user", "content": "Q"},
        {"role": "user", "content": [{"type": "text", "text": "Q"}, {"type": "image_url"}]},
        {"role": "user", "parts": [{"type": "text", "content": "Q"}]},
        {"role": "user", "parts": [{"text": "Q"}]},
        {"role": "USER", "content": [{"text": "Q"}]},
        {"role": "ChatRole.USER", "_content": [{"text": "Q"}]},
        {"type": "human", "data": {"content": "Q"}},
        {"message": {"role": "human", "content": "Q"}},
        {"type": "human", "content": "Q"},
        LANGCHAIN,
        ["human", "Q"],
    ],
)
def test_messages_in_every_form(message: Any) -> None:
    for value in ([message], json.dumps([message]), {"messages": [message]}, [[message]]):
        assert read_messages(value) == [ChatMessage("user", "Q")], value


@each_row(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "name": "f"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
        {"role": "assistant", "content": [{"toolUse": {"name": "f"}}]},
        {"role": "model", "parts": [{"function_call": {"name": "f"}}]},
        {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [{"id": "1"}]}},
    ],
)
def test_messages_that_ask_for_tools(message: Any) -> None:
    assert read_messages([message]) == [ChatMessage("assistant", None, True)]


def test_thoughts_and_tool_results_are_no_text() -> None:
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call_response", "response": "rain"},
        {"type": "text", "content": "A"},
    ]
    assert read_messages([{"role": "assistant", "parts": parts}]) == [ChatMessage("assistant", "A")]


def test_flattened_messages() -> None:
    attributes = {
        "gen_ai.prompt.10.role": "user",
        "gen_ai.prompt.10.content": "Q",
        "gen_ai.prompt.2.role": "system",
        "gen_ai.prompt.2.content": "be kind",
        "gen_ai.prompt.3.content.0.text": "Strands",
        "gen_ai.prompt.4.content": '[{"type": "text", "text": "part"}]',
        "gen_ai.prompt.99999999999.content": "no index",
        "gen_ai.prompt.-1.content": "no index",
    }
    assert read_flattened_messages(attributes, "gen_ai.prompt") == [
        ChatMessage("system", "be kind"),
        ChatMessage("", "Strands"),
        ChatMessage("", "part"),
        ChatMessage("user", "Q"),
    ]
    attributes = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.1.message_content.text": "two",
        "llm.input_messages.0.message.contents.0.message_content.text": "one",
        "llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "f",
    }
    assert read_flattened_messages(attributes, "llm.input_messages", "message.") == [
        ChatMessage("user", "one\ntwo"),
        ChatMessage("assistant", None, True),
    ]


def test_numbers_that_are_text() -> None:
    assert (
        parse_number("0.5"),
        parse_number("x"),
        parse_number(True),
        parse_number("nan"),
        parse_number(float("inf")),
    ) == (
        0.5,
        None,
        None,
        None,
        None,
    )
    assert (parse_count("11"), parse_count(-1), parse_count(1e300), parse_count("9" * 5000)) == (
        11,
        None,
        None,
        None,
    )
    assert (scalar_text("  "), scalar_text(7), scalar_text(False), scalar_text(10**6000)) == (
        None,
        "7",
        None,
        None,
    )


def test_what_is_no_text() -> None:
    assert is_embedding([0.1] * 8)
    assert is_embedding("[0.1, -0.2, 3e-05, 0.4]")
    assert is_embedding("index=0, embedding=[0.1, 0.2]")
    assert not is_embedding("[1, 2] say so")
    assert not is_embedding(["a", "b", "c"])


@each_row(
    "text",
    ["[" * 100_000, '{"a":' * 50_000, "[" + "1," * 300_000 + "1]", '"' + "\\" * 9999, "{" * 9],
)
def test_hostile_json_stays_text(text: str) -> None:
    assert parse_nested_json(text) == text
    for find in (find_question, find_answer):
        found, _ = find(text)
        assert found is None or found == text
    assert read_messages(text) == []


def test_json_is_opened_three_times_at_most() -> None:
    text = "x"
    for _ in range(5):
        text = json.dumps(text)
    assert parse_nested_json(text) == json.dumps(json.dumps("x"))
    assert parse_nested_json('{"a": NaN, "b": Infinity}') == {"a": None, "b": None}
    assert looks_like_json("[]")
    assert not looks_like_json("[see below]")


REPLY = (
    "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[TextContent(text='It\\'s A')], "
    "_name=None, _meta={'model': 'm'})"
)
ASKED = "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='Q')], _name=None)"


@each_row(
    ("value", "text"),
    [
        ({"llm": {"replies": [REPLY]}}, "It's A"),
        ({"llm": {"replies": [ASKED, REPLY]}}, "It's A"),
        ({"answer_builder": {"answers": ["GeneratedAnswer(data='A', query='Q', meta={})"]}}, "A"),
        ({"output": "AIMessage(content='A', additional_kwargs={})"}, "A"),
        ("content='A' additional_kwargs={} response_metadata={}", "A"),
        ("Prediction(\n    reasoning='no',\n    answer='A'\n)", "A"),
        ("Response(response='A', source_nodes=[NodeWithScore(node=TextNode(text='no'))])", "A"),
        ({"output": "HumanMessage(content='Q', additional_kwargs={})"}, None),
        ({"output": "ChatMessage(_role=<ChatRole.ASSISTANT: 'x'>, _content=[ToolCall("}, None),
        ("ChatMessage(_content=[TextContent(text='never end", None),
        ("Use `Client(timeout=3)` for that.", "Use `Client(timeout=3)` for that."),
        ("print(text='x')", "print(text='x')"),
    ],
)
def test_an_objects_repr_is_no_answer_but_its_text_may_be(value: Any, text: str | None) -> None:
    assert find_answer(value)[0] == text
    if isinstance(value, dict):
        assert find_answer(json.dumps(value))[0] == text


def test_a_question_in_a_repr() -> None:
    assert find_question({"llm": {"messages": [ASKED]}})[0] == "Q"
    assert find_question({"llm": {"messages": [REPLY]}})[0] is None


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (
            'AiMessage { text = "Five \\"days\\".", toolExecutionRequests = [], attributes = {} }',
            "assistant",
        ),
        (
            "AssistantMessage [messageType=ASSISTANT, textContent=Five days., metadata={}]",
            "assistant",
        ),
        ('UserMessage { name = null, contents = [TextContent { text = "How long?" }] }', "user"),
        ("UserMessage{content='How long?', properties={}, messageType=USER}", "user"),
    ],
)
def test_messages_of_java(text: str, role: str) -> None:
    if role == "user":
        assert find_question(text) == ("How long?", None)
        assert find_answer(text)[0] is None
    else:
        assert (find_answer(text)[0] or "").startswith("Five ")
        assert find_question(text)[0] is None


def test_roles_as_the_agent_of_the_user_keeps_them() -> None:
    asked = {"role": "assistant", "name": "user_proxy", "content": "How long?"}
    said = {"role": "user", "name": "helper", "content": "Five days. TERMINATE"}
    assert find_answer([asked, said]) == ("Five days.", None)
    assert find_question([asked, said]) == ("How long?", None)
    result = {"chat_history": [asked, said], "summary": "Five days.", "cost": {}}
    assert find_answer(result) == ("Five days.", None)
    assert find_answer({**result, "summary": ""}) == ("Five days.", None)
    # a bot that greets its user
    for name in ("bot", "user_support"):
        greeting = {"role": "assistant", "name": name, "content": "Hello."}
        question = {"role": "user", "name": "ann", "content": "How long?"}
        assert find_question([greeting, question]) == ("How long?", None)
