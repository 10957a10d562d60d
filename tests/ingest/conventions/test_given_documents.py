"""Documents in the request of a model call are the passages that the model was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragmeter.core.files import parse_yaml
from ragmeter.metrics.citations import resolve_citations

from tests.ingest.building import Run, documents, only
from tests.tables import each_row

FILE = Path(__file__).parents[2] / "data" / "given_documents.yaml"
SAMPLES: dict[str, Any] = parse_yaml(FILE.read_bytes())
CALLS: dict[str, Any] = {one["name"]: one for one in SAMPLES["calls"]}
MESSAGES = [name for name, one in CALLS.items() if "documents" not in one["request"]]
KIND = "openinference.span.kind"

Attributes = dict[str, Any]


def body(request: Attributes, reply: Attributes) -> Attributes:
    """As OpenInference keeps request and reply whole."""
    return {KIND: "LLM", "input.value": json.dumps(request), "output.value": json.dumps(reply)}


def keywords(request: Attributes, reply: Attributes) -> Attributes:
    """As a decorator keeps the arguments of a function."""
    given = {"args": [], "kwargs": request}
    return {KIND: "LLM", "input.value": json.dumps(given), "output.value": json.dumps(reply)}


def observation(request: Attributes, reply: Attributes) -> Attributes:
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps(request),
        "langfuse.observation.output": json.dumps(reply),
    }


def flattened(request: Attributes, reply: Attributes) -> Attributes:
    """As OpenInference flattens messages, with parts of other kinds as JSON in their text."""
    out: Attributes = {KIND: "LLM", "output.value": json.dumps(reply)}
    for number, message in enumerate(request["messages"]):
        at = f"llm.input_messages.{number}.message."
        out[at + "role"] = message["role"]
        if isinstance(message["content"], str):
            out[at + "content"] = message["content"]
            continue
        for place, part in enumerate(message["content"]):
            kind = part.get("type")
            if kind == "tool_result":
                out[at + "content"] = json.dumps(part["content"])
            elif kind == "tool_use":
                out[at + "tool_calls.0.tool_call.function.name"] = part["name"]
            else:
                text = part["text"] if kind == "text" else json.dumps(part)
                out[f"{at}contents.{place}.message_content.type"] = kind
                out[f"{at}contents.{place}.message_content.text"] = text
    return out


def prompts(request: Attributes, reply: Attributes) -> Attributes:
    """As OpenLLMetry keeps messages, with lists of parts as JSON."""
    out: Attributes = {"gen_ai.system": "x", "llm.request.type": "chat"}
    for number, message in enumerate(request["messages"]):
        content = message["content"]
        out[f"gen_ai.prompt.{number}.role"] = message["role"]
        out[f"gen_ai.prompt.{number}.content"] = (
            content if isinstance(content, str) else json.dumps(content)
        )
    out["gen_ai.completion.0.role"] = "assistant"
    out["gen_ai.completion.0.content"] = SAMPLES["answer"]
    return out


def parts(request: Attributes, reply: Attributes) -> Attributes:
    """As the semantic conventions have messages."""
    given = [
        {"role": one["role"], "parts": one["content"]}
        if isinstance(one["content"], list)
        else {"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]}
        for one in request["messages"]
    ]
    answer = [{"type": "text", "content": SAMPLES["answer"]}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": answer}]),
    }


FORMS = [(form, name) for form in (body, keywords, observation) for name in CALLS]
FORMS += [(form, name) for form in (prompts, parts) for name in MESSAGES]
FORMS += [(flattened, name) for name in MESSAGES if name.startswith("Anthropic")]


@each_row(("form", "name"), FORMS, ids=lambda one: getattr(one, "__name__", one))
def test_they_are_the_passages_and_no_part_of_the_question(form: Any, name: str) -> None:
    call = CALLS[name]
    run = Run()
    run.span("chat", attributes=form(call["request"], call["reply"]))
    trace = only(run)
    assert (trace.query, trace.answer) == (SAMPLES["question"], SAMPLES["answer"])
    assert trace.passages is not None
    texts = [" ".join((passage.text or "").split()) for passage in trace.passages]
    assert texts == SAMPLES["texts"]
    if "ids" in call:
        assert [passage.id for passage in trace.passages] == call["ids"]
    if "cites" in call and form not in (prompts, parts):  # these have no body of the reply
        (mark,) = resolve_citations(trace).marks
        assert (trace.answer or "")[mark.start : mark.end] == "Refunds take five days."
        assert mark.passages == [call["cites"]]


def test_a_document_without_text_keeps_its_place() -> None:
    call = json.loads(json.dumps(CALLS["Anthropic, plain text documents"]))
    scan = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0"}
    content = call["request"]["messages"][0]["content"]
    content.insert(0, {"type": "document", "title": "Scan", "source": scan})
    cited = call["reply"]["content"][0]["citations"][0]
    cited |= {"document_index": 1, "document_title": None, "cited_text": ""}
    run = Run()
    run.span("chat", attributes=body(call["request"], call["reply"]))
    trace = only(run)
    assert [passage.text for passage in trace.passages or ()] == [None, *SAMPLES["texts"]]
    assert [mark.passages for mark in resolve_citations(trace).marks] == [[1]]


def test_what_a_retriever_found_comes_first() -> None:
    call = CALLS["Anthropic, search results"]
    run = Run()
    root = run.span("rag", attributes={KIND: "CHAIN"})
    found = documents("Refunds take a week.", id=["r1"])
    run.span("retrieve", root, (0.1, 0.2), {KIND: "RETRIEVER", **found})
    run.span("chat", root, (0.3, 0.9), body(call["request"], call["reply"]))
    trace = only(run)
    assert [passage.id for passage in trace.passages or ()] == ["r1"]
    assert trace.query == SAMPLES["question"]


@each_row("listed", [[], [1], "none", [[]], [{"id": "x"}], {"a": 1}, None])
def test_other_values_are_no_documents(listed: Any) -> None:
    messages = [{"role": "user", "content": SAMPLES["question"]}]
    reply = CALLS["Cohere v1"]["reply"]
    run = Run()
    run.span("chat", attributes=body({"messages": messages, "documents": listed}, reply))
    assert not [passage for passage in only(run).passages or () if passage.text]
