"""Passages that no span of a retrieval holds: in messages of calls, and of hosted search."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.trace import Trace

from tests.ingest.building import Run, messages, only
from tests.tables import each_row

KIND = "openinference.span.kind"
TEXTS = ["Refunds take five days to arrive, always.", "Another text of more than four words."]
FOUND = {"documents": [{"id": "refunds", "text": TEXTS[0]}, {"id": "x", "text": TEXTS[1]}]}
REPLY = {"choices": [{"message": {"role": "assistant", "content": "A."}}]}


def call(attributes: dict[str, Any], **settings: Any) -> Trace:
    run = Run()
    run.span("chat", attributes=attributes)
    return only(run, **settings)


def with_body(body: Any) -> dict[str, Any]:
    return {KIND: "LLM", "input.value": json.dumps(body), "output.value": json.dumps(REPLY)}


def flattened(result: str) -> dict[str, Any]:
    return {
        KIND: "LLM",
        **messages("Q?", "A."),
        "llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "read_pages",
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.tool_call_id": "c1",
        "llm.input_messages.2.message.content": result,
    }


PART = {"type": "text", "text": json.dumps(FOUND)}
USE = {"toolUseId": "c", "name": "read_pages"}
HITS = [{"file_id": "f", "text": TEXTS[0], "score": 1}]
ASKS = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "read_pages"}}]}
GENAI = [
    {"role": "user", "parts": [{"type": "text", "content": "Q?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "read_pages"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": FOUND}]},
]
BODIES: list[dict[str, Any]] = [
    flattened(json.dumps(FOUND)),
    {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(GENAI),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "A."}]}]
        ),
    },
    {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Q?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "c",
        "gen_ai.prompt.1.tool_calls.0.name": "read_pages",
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.tool_call_id": "c",
        "gen_ai.prompt.2.content": json.dumps(FOUND),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "A.",
    },
    with_body(
        {
            "messages": [
                {"role": "user", "content": "Q?"},
                ASKS,
                {"role": "tool", "tool_call_id": "c", "content": json.dumps(FOUND)},
            ]
        }
    ),
    with_body(
        {
            "messages": [
                {"role": "user", "content": "Q?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "read_pages"}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c", "content": [PART]}],
                },
            ]
        }
    ),
    with_body(
        {
            "messages": [
                {"role": "user", "content": [{"text": "Q?"}]},
                {"role": "assistant", "content": [{"toolUse": USE}]},
                {
                    "role": "user",
                    "content": [{"toolResult": {"toolUseId": "c", "content": [{"json": FOUND}]}}],
                },
            ]
        }
    ),
    with_body(
        {
            "input": [
                {"role": "user", "content": "Q?"},
                {"type": "function_call", "call_id": "c", "name": "read_pages"},
                {"type": "function_call_output", "call_id": "c", "output": json.dumps(FOUND)},
            ]
        }
    ),
    with_body(
        {
            "contents": [
                {"role": "user", "parts": [{"text": "Q?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "read_pages"}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "read_pages", "response": FOUND}}],
                },
            ]
        }
    ),
]


@each_row("attributes", BODIES)
def test_a_tools_result_that_only_the_next_call_holds(attributes: dict[str, Any]) -> None:
    trace = call(attributes)
    assert [passage.text for passage in trace.passages or ()] == TEXTS
    assert (trace.query, trace.answer) == ("Q?", "A.")
    assert trace.guessed == {"passages": "tool_result"}
    named = call(attributes, tool_names=["read_*"])
    assert named.passages == trace.passages
    assert named.guessed is None
    left_out = call(attributes, excluded_tools=["read_pages"])
    assert left_out.missing["passages"] == "no_passages_captured"


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("key", ["pydantic_ai.all_messages", "all_messages_events"])
def test_a_tools_result_that_only_the_messages_of_a_run_hold(key: str, server: bool) -> None:
    reply = {"role": "assistant", "parts": [{"type": "text", "content": "A."}]}
    run = Run(scope="pydantic-ai")
    top = run.span("POST /ask", at=(0, 5), kind=2) if server else None
    agent = run.span(
        "agent run",
        top,
        (0, 4),
        {"gen_ai.agent.name": "a", key: json.dumps([*GENAI, reply]), "final_result": "A."},
    )
    run.span("chat m", agent, (1, 2), {"gen_ai.operation.name": "chat"})
    trace = only(run, tool_names=["read_pages"])
    assert [passage.text for passage in trace.passages or ()] == TEXTS
    assert (trace.query, trace.answer) == ("Q?", "A.")


def test_a_tool_whose_text_is_no_list_counts_by_its_name_and_is_named() -> None:
    attributes = flattened("The weather is fine today in all of Lisbon.")
    run = Run()
    run.span("chat", attributes=attributes)
    read = extract_requests(run.spans, OtlpSettings())
    assert read.traces[0].passages is None
    assert [(tool.name, tool.found) for tool in read.origins[0]["tools"]] == [("read_pages", False)]
    trace = call(attributes, tool_names=["read_pages"])
    assert [passage.text for passage in trace.passages or ()] == [
        "The weather is fine today in all of Lisbon."
    ]


def test_results_of_an_earlier_turn_are_not_of_this_one() -> None:
    turns = [
        {"role": "user", "content": "before"},
        ASKS,
        {"role": "tool", "tool_call_id": "c", "content": json.dumps(FOUND)},
        {"role": "assistant", "content": "Five days."},
        {"role": "user", "content": "Thanks?"},
    ]
    assert call(with_body({"messages": turns})).passages is None


AZURE_HIT = {"content": TEXTS[0], "title": "d", "chunk_id": "0"}


def azure(context: dict[str, Any]) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": "A.", "context": context}}],
    }


def test_what_azure_retrieved_and_did_not_cite_is_a_passage() -> None:
    retrieved = [{"content": TEXTS[1], "chunk_id": "1"}, AZURE_HIT]
    body = azure({"citations": [AZURE_HIT], "all_retrieved_documents": retrieved})
    trace = call({KIND: "LLM", "input.value": "Q?", "output.value": json.dumps(body)})
    assert [passage.text for passage in trace.passages or ()] == TEXTS


@pytest.mark.parametrize(
    "body",
    [
        {
            "object": "response",
            "output": [
                {"type": "file_search_call", "results": HITS},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "A."}],
                },
            ],
        },
        {
            "output": {"text": "A."},
            "citations": [
                {"retrievedReferences": [{"content": {"text": TEXTS[0]}, "location": {}}]}
            ],
        },
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "A."}]},
                    "groundingMetadata": {
                        "groundingChunks": [{"retrievedContext": {"text": TEXTS[0], "uri": "u"}}]
                    },
                }
            ]
        },
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "A."}]},
                    "groundingMetadata": {
                        "groundingChunks": [
                            {"retrievedContext": {"uri": "u", "ragChunk": {"text": TEXTS[0]}}}
                        ]
                    },
                }
            ]
        },
        azure({"messages": [{"role": "tool", "content": json.dumps({"citations": [AZURE_HIT]})}]}),
        azure(
            {
                "citations": [AZURE_HIT],
                "all_retrieved_documents": [
                    AZURE_HIT,
                    {"content": TEXTS[1], "filter_reason": "score"},
                ],
            }
        ),
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "A.",
                        "context": {
                            "citations": [{"content": TEXTS[0], "title": "d", "chunk_id": "0"}]
                        },
                    }
                }
            ]
        },
    ],
)
def test_documents_of_a_hosted_search(body: dict[str, Any]) -> None:
    trace = call({KIND: "LLM", "input.value": "Q?", "output.value": json.dumps(body)})
    assert [passage.text for passage in trace.passages or ()] == [TEXTS[0]]
    assert trace.answer == "A."
    events = f"data: {json.dumps({'type': 'response.completed', 'response': body})}\n\n"
    delta = {"type": "response.output_text.delta", "delta": "A."}
    streamed = {
        KIND: "LLM",
        "input.value": "Q?",
        "output.value": f"data: {json.dumps(delta)}\n\n{events}",
    }
    assert [passage.text for passage in call(streamed).passages or ()] == [TEXTS[0]]


@pytest.mark.parametrize(
    "output",
    [
        {"blocks": [{"block_type": "text", "text": json.dumps(FOUND)}], "tool_name": "read_pages"},
        {"blocks": [{"block_type": "text", "text": text} for text in TEXTS], "raw_output": "x"},
        {"content": [{"type": "text", "text": text} for text in TEXTS], "isError": False},
        {"raw_output": FOUND, "tool_name": "read_pages"},
    ],
)
def test_blocks_of_a_framework(output: dict[str, Any]) -> None:
    run = Run()
    agent = run.span("agent", attributes={KIND: "AGENT", "input.value": "Q?", "output.value": "A."})
    tool = {KIND: "TOOL", "tool.name": "read_pages", "output.value": json.dumps(output)}
    run.span("tool", agent, (0.1, 0.2), tool)
    run.span("llm", agent, (0.3, 0.4), {KIND: "LLM", **messages("Q?", "A.")})
    trace = only(run, tool_names=["read_pages"])
    assert [passage.text for passage in trace.passages or ()] == TEXTS


def test_tags_that_differ_in_every_request_are_left_out() -> None:
    tags = {
        "langgraph_checkpoint_ns": "a",
        "checkpoint_ns": "generate:4d1c",
        "lc_versions": "1",
        "run_id": "7",
        "requestId": "8",
        "job": "7f6a1c1e-8a54-4b43-9c0e-0c6a0f7f1b11",
    }
    kept = {"tenant": "7f6a1c1e-8a54-4b43-9c0e-0c6a0f7f1b11", "plan": "pro", "build": "0" * 16}
    association = {
        f"traceloop.association.properties.{name}": v for name, v in {**tags, **kept}.items()
    }
    for metadata in ({"metadata": json.dumps({**tags, **kept}), KIND: "LLM"}, association):
        trace = call({"llm.request.type": "chat", **messages("Q?", "A."), **metadata})
        assert trace.tags == kept
