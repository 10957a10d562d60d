from __future__ import annotations

import json

from ragmeter.ingest.conventions import content_events
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.building import T0, Run, only
from tests.ingest.conventions.samples import wire_spans


def test_openlit() -> None:
    (one,) = wire_spans("langfuse-openlit-openai-chat.otlp.json")
    found = read_span(one)
    assert found.role is SpanRole.LLM
    assert found.query == "What is LLM Observability?"
    assert (found.answer or "").startswith("LLM Observability stands for logs")
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (14, 96, 0.000151)
    assert found.user is None


def test_lines_with_roles() -> None:
    text = "system: be kind\nuser: first\nassistant: yes\nuser: line one\nline: two"
    turns = content_events.read_message_lines(text)
    assert [(turn.role, turn.text) for turn in turns] == [
        ("system", "be kind"),
        ("user", "first"),
        ("assistant", "yes"),
        ("user", "line one\nline: two"),
    ]
    assert content_events.read_message_lines("a word\nuser: no") == []


def test_messages_that_semantic_kernel_prints() -> None:
    text = '[{"role:" system, "content:" be kind}, \n{"role:" User, "content:" a}, {b\nline: two}]'
    turns = content_events.read_message_lines(text)
    assert [(turn.role, turn.text) for turn in turns] == [
        ("system", "be kind"),
        ("user", "a}, {b\nline: two"),
    ]


def test_semantic_kernel_of_dotnet() -> None:
    run = Run()
    events = [
        ("gen_ai.content.prompt", "gen_ai.prompt", '[{"role:" user, "content:" How long?}]'),
        (
            "gen_ai.content.completion",
            "gen_ai.completion",
            '[{"role:" Assistant, "content:" It is 24 months [1].}]',
        ),
    ]
    run.span(
        "chat.completions m",
        attributes={
            "gen_ai.operation.name": "chat.completions",
            "gen_ai.request.model": "m",
            "gen_ai.response.finish_reason": "[Length]",
            "gen_ai.response.prompt_tokens": -1,
        },
        events=[SpanEvent(name, T0, {key: value}) for name, key, value in events],
    )
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", "It is 24 months [1].")
    assert (trace.finish_reason, trace.usage) == ("length", None)


def test_choices_in_the_content_of_one_event() -> None:
    run = Run()
    choices = [{"message": {"role": "Assistant", "content": "24 months."}, "finish_reason": "Stop"}]
    event = SpanEvent("gen_ai.choice", T0, {"gen_ai.event.content": json.dumps(choices)})
    run.span("chat m", attributes={"gen_ai.operation.name": "chat"}, events=[event])
    assert only(run).answer == "24 months."
