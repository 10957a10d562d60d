"""OpenInference, one span at a time."""

from __future__ import annotations

from ragmeter.ingest.conventions.registry import preview_span, read_span
from ragmeter.ingest.conventions.span_content import (
    SpanContent,
    SpanRole,
)

from tests.ingest.conventions.samples import span

KIND = "openinference.span.kind"


def test_a_glance_leaves_out_what_wraps_others() -> None:
    chain = {KIND: "chain", "input.value": "Q", "session.id": "s", "user.id": "u"}
    light = preview_span(span(attributes=chain))
    assert light.light
    assert (light.role, light.query, light.session, light.user) == (SpanRole.CHAIN, None, "s", "u")
    for more in ({KIND: "LLM"}, {KIND: "AGENT"}, {"traceloop.span.kind": "task"}):
        other = preview_span(span(attributes={**chain, **more}))
        assert other.light
        assert other.query is None
    held = span(attributes={**chain, "retrieval.documents.0.document.id": "a"})
    assert preview_span(held) == read_span(held)
    assert preview_span(span(attributes={"a": "b"})) == SpanContent()
