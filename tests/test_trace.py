from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from ragmeter.trace import Calculation, Reference, SpanRef, Trace, read_finish_reason

from tests.tables import each_row

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def trace(span: object) -> Trace:
    fields: dict[str, Any] = {"trace_id": "t", "service": "bot", "timestamp": 0, "span": span}
    return Trace.model_validate(fields)


def test_the_ids_of_a_span_are_kept_in_lower_case() -> None:
    found = trace({"trace_id": TRACE.upper(), "span_id": SPAN})
    assert found.span == SpanRef(trace_id=TRACE, span_id=SPAN)
    assert Trace.model_validate_json(found.model_dump_json()).span == found.span


@each_row(
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


@each_row(
    "wrong",
    [
        {"supports": [{"rel_path": "a"}], "support_groups": [[0, 1]]},
        {"supports": [{"rel_path": "a"}], "support_groups": [[]]},
        {"supports": [{"rel_path": "a"}], "support_groups": [[-1]]},
        {"support_groups": [[0]]},
        {"conflict": "cite_older"},
        {"checks": [{"patterns": ["a"]}] * 51},
        {"checks": [{"forbidden": ["a"] * 21}]},
        {"calculation": {"result": "NaN"}},
        {"calculation": {"result": 1, "tolerance": -1}},
        {"calculation": {"steps": [1]}},
        {"supports": [{"updated": "yesterday"}]},
    ],
)
def test_a_reference_that_would_judge_wrongly_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Reference.model_validate(wrong)


def test_a_reference_is_read() -> None:
    found = Reference.model_validate(
        {
            "supports": [{"rel_path": 7, "updated": "2026-01-01T01:00:00+01:00"}, {"snippet": "x"}],
            "support_groups": [[0, 1], [1]],
            "checks": [{"patterns": ["("]}],  # whether it is a pattern is seen when it is used
            "calculation": {"result": "604"},
            "unknown": 1,
        }
    )
    assert found.supports[0].rel_path == "7"
    assert found.supports[0].updated == datetime(2026, 1, 1, tzinfo=UTC)
    assert found.calculation == Calculation(result=604.0)
    assert Reference.model_validate_json(found.model_dump_json()) == found


@each_row(
    ("reason", "words"),
    [
        ("stop", "STOP end_turn COMPLETE eos_token stop_sequence FinishReason.STOP EndTurn"),
        ("stop", "endoftext end_of_text stopped_eos stopped_word end_of_turn turn_complete"),
        ("length", "MAX_TOKENS max_output_tokens model_context_window_exceeded MaxTokens"),
        ("length", "maximum_tokens stopped_limit out_of_tokens max_tokens_reached length_limit"),
        ("content_filter", "SAFETY RECITATION guardrail_intervened refusal ContentFiltered"),
        ("content_filter", "IMAGE_RECITATION sensitive JAILBREAK MODEL_ARMOR content_moderation"),
        ("tool_calls", "tool_use TOOL_CALL TOOL_EXECUTION ToolUse function_calls"),
        ("error", "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL network_error"),
        ("error", "insufficient_system_resource malformed_tool_use"),
        (None, "null FINISH_REASON_UNSPECIFIED"),
    ],
)
def test_the_words_of_providers_for_the_end_of_an_answer_are_read_alike(
    reason: str | None, words: str
) -> None:
    assert {read_finish_reason(word) for word in words.split()} == {reason}


def test_another_word_for_the_end_of_an_answer_is_kept() -> None:
    assert read_finish_reason("pause_turn") == "pause_turn"
    assert read_finish_reason("USER_CANCEL") == "user_cancel"
