"""The answer is what the user read: no thoughts, streams put together, empty is empty."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.metrics.builtin import PreparedTrace, score_cheap
from ragmeter.trace import Trace

from tests.ingest.building import Run, documents, messages, only
from tests.tables import each_row

ANSWER = "The warranty is 24 months [1]."
PIECES = ["The ", "warranty ", "is ", "24 ", "months ", "[1]."]
KIND = "openinference.span.kind"


def chain(output: Any, **more: Any) -> Trace:
    """A request that retrieves and gives back `output`."""
    run = Run()
    root = run.span(
        "rag",
        attributes={
            KIND: "CHAIN",
            "input.value": "How long is the warranty?",
            "output.value": output if isinstance(output, str) else json.dumps(output),
            **more,
        },
    )
    run.span(
        "retriever", root, (0.1, 0.2), {KIND: "RETRIEVER", **documents("The warranty: 24 months.")}
    )
    return only(run)


def call(attributes: dict[str, Any], **fields: Any) -> Trace:
    """A request that is one model call."""
    run = Run()
    run.span("chat", attributes=attributes, **fields)
    return only(run)


def genai(*replies: dict[str, Any], **more: Any) -> Trace:
    return call(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": "How long?"}]}]
            ),
            "gen_ai.output.messages": json.dumps(list(replies)),
            **more,
        }
    )


TEXT_REPLY = {"role": "assistant", "content": "A"}


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": text}, **more}],
    }


@each_row(
    "chunks",
    [
        [chunk(piece) for piece in PIECES],
        [{"choices": []}, *map(chunk, ["", *PIECES]), chunk("", finish_reason="stop")],
        [{"type": "message_start", "message": {"content": []}}]
        + [{"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}]
        + [
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": p}}
            for p in PIECES
        ]
        + [{"type": "message_stop"}],
        [{"type": "response.created", "response": {}}]
        + [{"type": "response.output_text.delta", "delta": piece} for piece in PIECES]
        + [{"type": "response.completed", "response": {"output": []}}],
        [{"messageStart": {"role": "assistant"}}]
        + [{"contentBlockDelta": {"delta": {"text": p}, "contentBlockIndex": 0}} for p in PIECES]
        + [{"messageStop": {"stopReason": "end_turn"}}],
        [{"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]}]
        + [{"candidates": [{"content": {"parts": [{"text": piece}]}}]} for piece in PIECES],
        [{"message": {"role": "assistant", "content": piece}, "done": False} for piece in PIECES],
        [{"response": piece, "done": False} for piece in PIECES],
        [{"type": "AIMessageChunk", "content": piece} for piece in PIECES],
        [{"lc": 1, "id": ["x", "AIMessageChunk"], "kwargs": {"content": p}} for p in PIECES],
        [{"type": "text-delta", "textDelta": piece} for piece in PIECES],
        [{"delta": piece} for piece in PIECES],
        [{"content": piece} for piece in PIECES],
        PIECES,
    ],
)
def test_a_stream_is_put_together(chunks: list[Any]) -> None:
    assert chain(chunks).answer == ANSWER
    assert chain({"outputs": chunks}).answer == ANSWER
    if isinstance(chunks[0], dict):
        events = "\n\n".join(f"data: {json.dumps(one)}" for one in chunks)
        assert chain(f"{events}\n\ndata: [DONE]\n").answer == ANSWER
        assert chain("\n".join(json.dumps(one) for one in chunks)).answer == ANSWER


@pytest.mark.parametrize(
    "output",
    [
        ["One whole answer of a batch of several.", "Another whole answer of that very batch."],
        [{"page_content": "a text", "metadata": {}}, {"page_content": "another", "metadata": {}}],
    ],
)
def test_a_list_of_whole_texts_is_no_answer(output: list[Any]) -> None:
    assert chain(output).missing["answer"] == "no_answer_captured"


GENAI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "Hi?"}]}]
    ),
    "gen_ai.response.finish_reasons": ["stop"],
}
# it writes no attribute for an empty text
OPENLLMETRY = {
    "llm.request.type": "chat",
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "Hi?",
    "gen_ai.completion.0.role": "assistant",
}


LANGFUSE = {"langfuse.observation.input": "Hi?", "langfuse.observation.output": ""}


@each_row(
    "trace",
    [
        chain(""),
        call({**LANGFUSE, "langfuse.observation.type": "generation"}),
        call({**LANGFUSE, "langfuse.observation.model.name": "m"}),
        call({"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"Hi?"', "mlflow.spanOutputs": ""}),
        call({"mlflow.spanType": '"LLM"', "mlflow.spanInputs": "Hi?", "mlflow.spanOutputs": '""'}),
        chain({"choices": [{"message": {"role": "assistant", "content": ""}}]}),
        chain({"choices": [{"message": {"role": "assistant", "content": None}}]}),
        chain({"choices": [{"message": {"role": "assistant", "content": []}}]}),
        chain({"candidates": [{"finishReason": "SAFETY"}]}),
        chain({"candidates": []}),
        chain({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}),
        chain({"object": "response", "output": [{"type": "reasoning", "summary": []}]}),
        chain({"answer": ""}),
        chain({"result": {"output": "  "}}),
        chain({"messages": [{"type": "human", "content": "Q"}, {"type": "ai", "content": ""}]}),
        chain("<think>only thoughts"),
        chain({"candidates": [{"content": {"parts": []}, "finishReason": "RECITATION"}]}),
        chain({"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}]}),
        chain({"results": [{"outputText": "", "completionReason": "CONTENT_FILTERED"}]}),
        chain({"results": [{"generated_text": "", "stop_reason": "max_tokens"}]}),
        chain([{"generated_text": " "}]),
        genai({"role": "assistant", "parts": [{"type": "text", "content": " \n"}]}),
        call({**GENAI, "gen_ai.output.messages": "[]"}),
        call({**OPENLLMETRY, "gen_ai.completion.0.finish_reason": "content_filter"}),
        genai({"role": "assistant", "parts": [], "finish_reason": "length"}),
        genai({"role": "assistant", "parts": [{"type": "text", "content": ""}]}),
        genai({"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]}),
        call(
            {
                KIND: "LLM",
                **messages("Hi?"),
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": "",
            }
        ),
        call(
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Hi?",
                "llm.request.type": "chat",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "",
            }
        ),
    ],
)
def test_what_is_there_and_empty_is_an_empty_answer(trace: Trace) -> None:
    assert trace.answer == ""
    assert trace.missing.get("answer") is None
    scores = {score.metric: score.value for score in score_cheap(PreparedTrace(trace))}
    assert scores["empty_answer"] == 1.0


@each_row(
    "attributes",
    [
        {KIND: "LLM", **messages("Hi?")},
        {KIND: "LLM", **messages("Hi?"), "llm.output_messages.0.message.role": "assistant"},
        {KIND: "LLM", **messages("Hi?"), "output.value": "__REDACTED__"},
        {KIND: "LLM", **messages("Hi?"), "output.value": "null"},
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": "Hi?",
            "langfuse.observation.output": "null",
        },
        OPENLLMETRY,
        {
            **OPENLLMETRY,
            "gen_ai.prompt.0.content": "",
            "gen_ai.completion.0.finish_reason": "stop",
        },
        {**OPENLLMETRY, "gen_ai.completion.0.finish_reason": "error"},
        {**GENAI, "gen_ai.output.messages": "[]", "gen_ai.response.finish_reasons": []},
        {
            KIND: "LLM",
            **messages("Hi?"),
            "output.value": json.dumps(
                {"role": "assistant", "content": [{"type": "image", "source": {}}]}
            ),
        },
    ],
)
def test_what_is_not_there_is_not_empty(attributes: dict[str, Any]) -> None:
    trace = call(attributes)
    assert trace.answer is None
    assert "answer" in trace.missing


@pytest.mark.parametrize("length", [128, 1_000, 4_096])
def test_an_answer_cut_without_a_mark_is_whole_in_the_reply(length: int) -> None:
    whole = "Refunds are paid within 14 days. " * 200
    for given, expected in ((whole[:length], whole.strip()), (whole[: length - 7], None)):
        run = Run()
        root = run.span(
            "rag", attributes={KIND: "CHAIN", "input.value": "Q?", "output.value": given}
        )
        run.span("llm", root, (0.3, 0.4), {KIND: "LLM", **messages("Q?", whole)})
        answer = only(run).answer
        assert answer is not None
        assert answer.strip() == (expected or given.strip())


def test_an_empty_output_beside_a_reply_is_the_reply_and_a_guess() -> None:
    run = Run()
    root = run.span("rag", attributes={KIND: "CHAIN", "input.value": "Q?", "output.value": ""})
    run.span("retriever", root, (0.1, 0.2), {KIND: "RETRIEVER", **documents("A text of it.")})
    run.span("llm", root, (0.3, 0.4), {KIND: "LLM", **messages("Q?", ANSWER)})
    trace = only(run)
    assert trace.answer == ANSWER
    assert trace.guessed == {"answer": "last_call"}


@pytest.mark.parametrize(
    "trace",
    [
        chain({"choices": [{"message": {"role": "assistant", "content": None, "refusal": "No."}}]}),
        chain(
            {
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "refusal", "refusal": "No."}],
                    }
                ]
            }
        ),
        genai({"role": "assistant", "parts": [{"type": "refusal", "refusal": "No."}]}),
        call(
            {
                KIND: "LLM",
                **messages("Hi?"),
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.refusal": "No.",
            }
        ),
    ],
)
def test_a_refusal_is_an_answer(trace: Trace) -> None:
    assert trace.answer == "No."


@each_row(
    "trace",
    [
        chain(
            {
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": "first"}},
                    {"index": 1, "message": {"role": "assistant", "content": "second"}},
                ]
            }
        ),
        chain(
            {
                "choices": [
                    {"index": 1, "message": {"role": "assistant", "content": "second"}},
                    {"index": 0, "message": {"role": "assistant", "content": "first"}},
                ]
            }
        ),
        chain(
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "first"}]}},
                    {"content": {"role": "model", "parts": [{"text": "second"}]}},
                ]
            }
        ),
        chain({"generations": [[{"text": "first"}, {"text": "second"}]]}),
        genai(
            {"role": "assistant", "parts": [{"type": "text", "content": "first"}]},
            {"role": "assistant", "parts": [{"type": "text", "content": "second"}]},
        ),
        call(
            {
                KIND: "LLM",
                **messages("Hi?", "first"),
                "llm.output_messages.1.message.role": "assistant",
                "llm.output_messages.1.message.content": "second",
            }
        ),
        call(
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Hi?",
                "llm.request.type": "chat",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "first",
                "gen_ai.completion.1.role": "assistant",
                "gen_ai.completion.1.content": "second",
            }
        ),
    ],
)
def test_of_several_choices_the_first_is_taken_and_marked(trace: Trace) -> None:
    assert trace.answer == "first"
    assert trace.guessed is not None
    assert trace.guessed["answer"] == "first_choice"


THOUGHT = "Maybe 36 months."


@each_row(
    "content",
    [
        [{"type": "reasoning", "text": THOUGHT}, {"type": "text", "text": ANSWER}],
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            {"type": "output_text", "text": ANSWER},
        ],
        [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}],
        [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": ANSWER}],
        [{"type": "text", "text": f"<think>{THOUGHT}</think>{ANSWER}"}],
        [{"reasoningContent": {"reasoningText": {"text": THOUGHT}}}, {"text": ANSWER}],
        [{"text": THOUGHT, "thought": True}, {"text": ANSWER}],
    ],
)
def test_thoughts_of_any_convention_are_left_out(content: list[dict[str, Any]]) -> None:
    assert chain({"role": "assistant", "content": content}).answer == ANSWER
    flattened = {
        f"llm.output_messages.0.message.contents.{n}.message_content.{key}": value
        for n, part in enumerate(content)
        for key, value in part.items()
        if not isinstance(value, dict | list)
    }
    if all("text" in part or part["type"] != "text" for part in content if "type" in part):
        role = {"llm.output_messages.0.message.role": "assistant"}
        trace = call({KIND: "LLM", **messages("Hi?"), **role, **flattened})
        assert trace.answer == ANSWER


def test_a_step_that_checks_the_answer_is_not_the_answer() -> None:
    run = Run()
    root = run.span("LangGraph.workflow", attributes={"traceloop.span.kind": "workflow"})
    for n, (name, reply) in enumerate((("generate", ANSWER), ("check", "yes"))):
        step = run.span(
            f"{name}.task",
            root,
            (0.2 + n, 0.9 + n),
            {"traceloop.span.kind": "task", "traceloop.entity.name": name},
        )
        run.span(
            "ChatOpenAI.chat",
            step,
            (0.3 + n, 0.8 + n),
            {
                "llm.request.type": "chat",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Q?",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": reply,
                "gen_ai.response.model": name,
            },
        )
    trace = only(run)
    assert (trace.answer, trace.model) == (ANSWER, "generate")


def test_a_reply_that_only_asks_for_tools_is_no_request() -> None:
    run = Run()
    asks = {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search"}
    run.span("chat", attributes={KIND: "LLM", **messages("Hi?"), **asks})
    read = extract_requests(run.spans, OtlpSettings())
    assert read.traces == []
    assert sum(read.dropped.values()) == 1


@each_row(
    ("trace", "reason"),
    [
        (genai({"role": "assistant", "parts": [], "finish_reason": "length"}), "length"),
        (genai(**{"gen_ai.response.finish_reasons": ["content_filter"]}), "content_filter"),
        (genai(**{"gen_ai.response.finish_reasons": '["stop"]'}), "stop"),
        (chain({"choices": [{"finish_reason": "length", "message": TEXT_REPLY}]}), "length"),
        (chain({"role": "assistant", "content": "A", "stop_reason": "max_tokens"}), "length"),
        (chain({"candidates": [{"finishReason": "SAFETY"}]}), "content_filter"),
        (chain({"finishReason": "blocked", "message": {"role": "model"}}), "content_filter"),
        (chain({"results": [{"outputText": "To", "completionReason": "LENGTH"}]}), "length"),
        (
            chain(
                {
                    "output": {"message": {"role": "assistant", "content": [{"text": "A"}]}},
                    "stopReason": "guardrail_intervened",
                }
            ),
            "content_filter",
        ),
        (
            chain(
                {
                    "incomplete_details": {"reason": "max_output_tokens"},
                    "status": "incomplete",
                    "output": [{"type": "message", **TEXT_REPLY}],
                }
            ),
            "length",
        ),
        (chain([chunk("The "), chunk("warranty"), chunk("", finish_reason="length")]), "length"),
        (chain({"message": {"role": "assistant", "content": "A"}, "done_reason": "stop"}), "stop"),
        (
            call(
                {KIND: "LLM", **messages("Hi?", "A"), "ai.response.finishReason": "content-filter"}
            ),
            "content_filter",
        ),
        (call({KIND: "LLM", **messages("Hi?", "A")}), None),
    ],
)
def test_why_the_answer_ended(trace: Trace, reason: str | None) -> None:
    assert trace.finish_reason == reason
    assert trace.tag("finish_reason") == reason
    scores = {score.metric: score.value for score in score_cheap(PreparedTrace(trace))}
    assert scores["cut_answer"] == (None if reason is None else float(reason == "length"))
    filtered = None if reason is None else float(reason == "content_filter")
    assert scores["filtered_answer"] == filtered


def test_the_model_of_the_reply_is_the_one_served_and_another_is_marked() -> None:
    asked = {
        KIND: "LLM",
        **messages("Hi?", "A"),
        "llm.model_name": "gpt-4o-mini",
        "llm.invocation_parameters": '{"model": "gpt-4o-mini"}',
    }
    trace = call(asked)
    assert (trace.model, trace.guessed) == ("gpt-4o-mini", {"model": "requested_model"})
    reply = {
        "generations": [
            [
                {
                    "message": {
                        "kwargs": {"response_metadata": {"model_name": "gpt-4o-mini-2026-01-01"}}
                    }
                }
            ]
        ]
    }
    trace = call({**asked, "output.value": json.dumps(reply)})
    assert (trace.model, trace.guessed) == ("gpt-4o-mini-2026-01-01", None)
    trace = call({**asked, "llm.model_name": "gpt-4o-mini-2026-01-01"})
    assert (trace.model, trace.guessed) == ("gpt-4o-mini-2026-01-01", None)
