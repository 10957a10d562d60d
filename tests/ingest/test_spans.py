from __future__ import annotations

import pytest
from ragmeter.ingest.spans import (
    EVALUATOR,
    KIND,
    OWN_SCOPE,
    OWN_SERVICE,
    LogEvent,
    Span,
    SpanEvent,
    is_evaluation_span,
    is_own_span,
    is_result_event,
)

IDS = ("1" * 32, "2" * 16)


def test_our_resource_or_our_scope_is_enough() -> None:
    assert is_own_span(Span(*IDS, scope=OWN_SCOPE))
    assert is_own_span(Span(*IDS, resource={"service.name": OWN_SERVICE}))
    assert not is_own_span(Span(*IDS, scope="langchain", resource={"service.name": "bot"}))


@pytest.mark.parametrize("kind", [EVALUATOR, "evaluator"])
def test_an_evaluator_is_one_whoever_sent_it(kind: str) -> None:
    assert is_evaluation_span(Span(*IDS, attributes={KIND: kind}))


@pytest.mark.parametrize("kind", ["LLM", None, 3, ["EVALUATOR"]])
def test_other_kinds_are_no_evaluators(kind: object) -> None:
    assert not is_evaluation_span(Span(*IDS, attributes={KIND: kind}))  # type: ignore[dict-item]


def test_a_result_event_is_told_by_its_name() -> None:
    assert is_result_event(LogEvent(*IDS, SpanEvent("gen_ai.evaluation.result")))
    assert not is_result_event(
        LogEvent(*IDS, SpanEvent("gen_ai.client.inference.operation.details"))
    )
