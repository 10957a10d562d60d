from __future__ import annotations

from ragmeter.ingest.conventions import content_events
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole

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
