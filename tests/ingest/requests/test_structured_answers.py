"""An answer that stands in the arguments of a tool call, which nothing executes."""

from __future__ import annotations

import json
from typing import Any

from tests.ingest.building import Run, documents, only, read
from tests.tables import each_row

KIND = "openinference.span.kind"
ANSWER = "The warranty is 24 months [1]."
ARGUMENTS = {"answer": ANSWER, "citations": [1]}
OPENAI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "Reply", "arguments": json.dumps(ARGUMENTS)},
}
QUESTION = "How long is the warranty?"


def openinference(name: str = "Reply", arguments: Any = None, **more: Any) -> dict[str, Any]:
    prefix = "llm.output_messages.0.message"
    return {
        KIND: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        f"{prefix}.role": "assistant",
        f"{prefix}.tool_calls.0.tool_call.function.name": name,
        f"{prefix}.tool_calls.0.tool_call.function.arguments": json.dumps(arguments or ARGUMENTS),
        **more,
    }


def body(reply: Any, **request: Any) -> dict[str, Any]:
    """A model call of OpenInference that holds request and reply as they went over the wire."""
    asked = {"messages": [{"role": "user", "content": QUESTION}], **request}
    return {KIND: "LLM", "input.value": json.dumps(asked), "output.value": json.dumps(reply)}


def genai(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": list(parts), "finish_reason": "tool_call"}]
        ),
        **more,
    }


ANTHROPIC = {
    "type": "message",
    "role": "assistant",
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "Reply", "input": ARGUMENTS}],
}
BEDROCK = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "t1", "name": "Reply", "input": ARGUMENTS}}],
        }
    },
    "stopReason": "tool_use",
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"name": "Reply", "args": ARGUMENTS}}],
            },
            "finishReason": "STOP",
        }
    ]
}
OPENAI = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        }
    ],
}
RESPONSES = {
    "object": "response",
    "output": [
        {"type": "function_call", "name": "Reply", "arguments": json.dumps(ARGUMENTS)},
    ],
    "tools": [{"type": "function", "name": "Reply", "parameters": {"properties": {}}}],
}
FORMS: dict[str, dict[str, Any]] = {
    "openinference": openinference(),
    "openinference, forced": openinference(
        name="extract",
        **{
            "llm.invocation_parameters": json.dumps(
                {"tool_choice": {"type": "function", "function": {"name": "extract"}}}
            )
        },
    ),
    "openai": body(OPENAI),
    "openai, responses": body(RESPONSES),
    "anthropic": body(ANTHROPIC, tool_choice={"type": "tool", "name": "Reply"}),
    "bedrock": body(BEDROCK, toolConfig={"toolChoice": {"tool": {"name": "Reply"}}}),
    "gemini": body(
        GEMINI,
        tool_config={
            "function_calling_config": {"mode": "ANY", "allowed_function_names": ["Reply"]}
        },
    ),
    "genai": genai({"type": "tool_call", "id": "1", "name": "Reply", "arguments": ARGUMENTS}),
    "openllmetry": {
        "gen_ai.system": "OpenAI",
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": QUESTION,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.name": "Reply",
        "gen_ai.completion.0.tool_calls.0.arguments": json.dumps(ARGUMENTS),
    },
    "vercel": {
        "ai.operationId": "ai.generateText.doGenerate",
        "operation.name": "ai.generateText.doGenerate",
        "ai.prompt.messages": json.dumps([{"role": "user", "content": QUESTION}]),
        "ai.response.toolCalls": json.dumps(
            [{"toolCallId": "1", "toolName": "Reply", "input": json.dumps(ARGUMENTS)}]
        ),
        "ai.response.finishReason": "tool-calls",
    },
    "langfuse": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps([{"role": "user", "content": QUESTION}]),
        "langfuse.observation.output": json.dumps(
            {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}
        ),
    },
    "mlflow": {
        "mlflow.spanType": json.dumps("CHAT_MODEL"),
        "mlflow.spanInputs": json.dumps({"messages": [{"role": "user", "content": QUESTION}]}),
        "mlflow.spanOutputs": json.dumps(OPENAI),
    },
}


def run_of(call: dict[str, Any]) -> Run:
    """An application without a span of its own for the answer."""
    run = Run()
    root = run.span("answer_question")
    run.span(
        "retrieve",
        root,
        (0.1, 0.2),
        {
            KIND: "RETRIEVER",
            "input.value": QUESTION,
            "output.value": "",
            **documents("The warranty: 24 months."),
        },
    )
    run.span("chat", root, (0.3, 0.9), call)
    return run


@each_row("form", FORMS)
def test_it_is_read_in_every_convention(form: str) -> None:
    trace = only(run_of(FORMS[form]))
    assert (trace.answer, trace.query, trace.missing) == (ANSWER, QUESTION, {})
    alone = Run()
    alone.span("chat", attributes=FORMS[form])
    assert only(alone).answer == ANSWER


SEARCHES = {
    "a search": openinference("search_docs", {"query": QUESTION}),
    "a search of a class": openinference("SearchDocs", {"query": QUESTION}),
    "a forced search": openinference(
        "Search",
        {"query": QUESTION},
        **{"llm.invocation_parameters": json.dumps({"tool_choice": "Search"})},
    ),
    "a choice that any tool fits": openinference(
        "lookup",
        {"text": QUESTION},
        **{"llm.invocation_parameters": json.dumps({"tool_choice": "required"})},
    ),
    "of two calls, none is the answer": genai(
        {"type": "tool_call", "name": "Reply", "arguments": ARGUMENTS},
        {"type": "tool_call", "name": "search", "arguments": {"query": "warranty"}},
    ),
}


@each_row("case", SEARCHES)
def test_a_reply_that_asks_a_tool_is_no_answer(case: str) -> None:
    trace = only(run_of(SEARCHES[case]))
    assert trace.answer is None
    alone = Run()
    alone.span("chat", attributes=SEARCHES[case])
    assert not read(alone).traces


def test_a_tool_that_is_executed_is_no_answer() -> None:
    run = run_of(openinference("final_answer", {"answer": "A draft that is checked."}))
    run.span(
        "final_answer",
        run.spans[0],
        (0.91, 0.95),
        {KIND: "TOOL", "tool.name": "final_answer", "output.value": "ok"},
    )
    assert only(run).answer is None


def test_a_later_call_in_words_is_the_answer() -> None:
    run = run_of(openinference())
    run.span(
        "chat",
        run.spans[0],
        (0.95, 1),
        {
            KIND: "LLM",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "Two years.",
        },
    )
    assert only(run).answer == "Two years."


def test_an_empty_output_of_a_retriever_is_no_answer() -> None:
    run = run_of(openinference())
    run.spans.pop()
    trace = only(run)
    assert trace.answer is None
    assert [one.text for one in trace.passages or ()] == ["The warranty: 24 months."]
