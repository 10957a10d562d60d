from __future__ import annotations

import pytest
from ragmeter.ingest.conventions import langfuse
from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole

from tests.ingest.conventions.samples import wire_spans
from tests.tables import each_row


def test_the_spans_of_its_sdk() -> None:
    generation, root = (read_span(one) for one in wire_spans(SAMPLE))
    assert generation.role is SpanRole.LLM
    assert (generation.query, generation.answer) == ("hello", "what's up?")
    assert (generation.session, generation.user) == ("my-session", "my-user")
    assert (generation.input_tokens, generation.output_tokens) == (123, 456)
    assert generation.cost_usd == pytest.approx(0.0021)
    assert generation.model == "gpt-4o"
    assert generation.prompt_version == "my-prompt@1"
    assert generation.first_token_ns == 1_746_026_930_686_390_000
    assert not generation.failed  # a warning is no failure
    assert generation.tags["tag.tag2"] == "true"
    assert generation.tags["environment"] == "production"
    assert root.role is SpanRole.CHAIN
    assert root.query is None


SAMPLE = "langfuse-langfuse-sdk-generation.otlp.json"


@each_row(
    ("text", "nanoseconds"),
    [
        ("2025-01-01T00:00:00Z", 1_735_689_600_000_000_000),
        ("2025-01-01T00:00:00.5", 1_735_689_600_500_000_000),
        ("1969-01-01T00:00:00Z", None),
        ("tomorrow", None),
        (7, None),
    ],
)
def test_times(text: object, nanoseconds: int | None) -> None:
    assert langfuse.parse_iso_nanoseconds(text) == nanoseconds
