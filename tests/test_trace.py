from __future__ import annotations

from typing import Any

import pytest

from agent.trace import SpanRef, Trace

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def trace(span: object) -> Trace:
    fields: dict[str, Any] = {"trace_id": "t", "service": "bot", "timestamp": 0, "span": span}
    return Trace.model_validate(fields)


def test_the_ids_of_a_span_are_kept_in_lower_case() -> None:
    found = trace({"trace_id": TRACE.upper(), "span_id": SPAN})
    assert found.span == SpanRef(trace_id=TRACE, span_id=SPAN)
    assert Trace.model_validate_json(found.model_dump_json()).span == found.span


@pytest.mark.parametrize(
    "span",
    [
        None,
        "b7ad6b7169203331",
        [TRACE, SPAN],
        {"trace_id": TRACE},
        {"trace_id": "0" * 32, "span_id": SPAN},  # what OpenTelemetry calls no id
        {"trace_id": TRACE, "span_id": SPAN + "00"},
        {"trace_id": TRACE, "span_id": "١" * 16},
        {"trace_id": int(TRACE, 16), "span_id": 7},
    ],
)
def test_a_span_that_is_none_costs_no_trace(span: object) -> None:
    assert trace(span).span is None
