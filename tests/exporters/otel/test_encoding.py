from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from ragmeter import __version__
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter_exporters.otel.encoding import (
    ExportedResult,
    ResultSelection,
    encode_logs,
    encode_spans,
)

from tests.exporters.otel.collector import LOGS, TRACES, Collector, plain
from tests.exporters.otel.scores import SPAN, TRACE, done, score

AT = 1_790_000_000_123_456_789

JUDGED = Score(
    "relevance", "umbrela", ScoreState.SCORED, 2.5, None, 0.05, {"grades": [3, 2]}, "3f2a0c1d9e8b"
)


def results(*scores: Score, span: bool = True, **settings: Any) -> list[ExportedResult]:
    selection = ResultSelection(ResultsExportSettings.model_validate(settings))
    pairs = done(*scores, span=span)
    return [one for pair in pairs for one in selection.of(*pair, AT)]


def record(one: Score, *, span: bool = True) -> tuple[LogRecord, Collector]:
    found = Collector()
    found.take(LOGS, encode_logs(results(one, span=span)))
    (only,) = found.records
    return only, found


def evaluator(one: Score) -> Span:
    found = Collector()
    found.take(TRACES, encode_spans(results(one)))
    (only,) = found.spans
    return only


def test_a_score_is_an_event_in_the_context_of_the_judged_span() -> None:
    only, found = record(JUDGED)
    assert (only.event_name, only.time_unix_nano) == ("gen_ai.evaluation.result", AT)
    assert (only.trace_id.hex(), only.span_id.hex()) == (TRACE, SPAN)
    about = plain(only.attributes)
    assert len(str(about.pop("log.record.uid"))) == 48
    assert about == {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": 2.5,
        "gen_ai.evaluation.explanation": '{"grades":[3,2]}',
        "ragmeter.service": "bot",
        "ragmeter.trace_id": "t-1",
        "ragmeter.scorer": "umbrela",
        "ragmeter.state": "scored",
        "ragmeter.fingerprint": "3f2a0c1d9e8b",
        "ragmeter.probability": 0.05,
    }
    resource = plain(found.resources[0].attributes)
    assert resource == {"service.name": "ragmeter", "service.version": __version__}
    assert found.scopes == ["ragmeter"]


def test_a_trace_that_names_no_span_is_named_by_its_own_id() -> None:
    only, _ = record(JUDGED, span=False)
    assert (only.trace_id, only.span_id) == (b"", b"")
    assert plain(only.attributes)["ragmeter.trace_id"] == "t-1"


def test_what_is_unscored_has_a_reason_and_no_value() -> None:
    about = plain(record(score(value=None))[0].attributes)
    assert about["error.type"] == about["ragmeter.reason"] == "no_text"
    assert about["ragmeter.state"] == "unscored"
    assert not {"gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"} & set(about)


def test_what_does_not_apply_is_no_error() -> None:
    state = ScoreState.NOT_APPLICABLE
    one = score(value=None, state=state, reason="no_answer")
    found = Collector()
    found.take(LOGS, encode_logs(results(one, states=["not_applicable"])))
    about = plain(found.records[0].attributes)
    assert about["gen_ai.evaluation.score.label"] == about["ragmeter.state"] == "not_applicable"
    assert about["ragmeter.reason"] == "no_answer"
    assert "error.type" not in about


@pytest.mark.parametrize(
    ("metric", "value", "label"),
    [
        ("answered", 1.0, "pass"),
        ("answered", 0.0, "fail"),
        ("answered", 0.5, None),
        ("citation_fabricated", 1.0, "fail"),
        ("citation_fabricated", 0.0, "pass"),
        ("grounding", 1.0, None),
        ("input_tokens", 1.0, None),
        ("precision_at_k:5", 1.0, None),
    ],
)
def test_only_what_says_one_of_two_things_has_a_label(
    metric: str, value: float, label: str | None
) -> None:
    about = plain(record(score(metric, value))[0].attributes)
    assert about.get("gen_ai.evaluation.score.label") == label


def test_a_score_is_an_evaluator_span_with_one_link() -> None:
    only = evaluator(JUDGED)
    (link,) = only.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (TRACE, SPAN)
    assert only.parent_span_id == b""
    assert only.trace_id.hex() != TRACE
    assert (len(only.trace_id), len(only.span_id)) == (16, 8)
    assert (only.name, only.status.code) == ("relevance evaluation", Status.STATUS_CODE_OK)
    about = plain(only.attributes)
    prefix = "evaluations.0.evaluation."
    metadata = json.loads(str(about.pop(f"{prefix}metadata")))
    assert {name for name in about if name.startswith("evaluations")} == {
        f"{prefix}{name}"
        for name in ("name", "score", "explanation", "annotator_kind", "identifier")
    }
    assert about["openinference.span.kind"] == "EVALUATOR"
    assert about[f"{prefix}name"] == "relevance"
    assert about[f"{prefix}score"] == 2.5
    assert about[f"{prefix}annotator_kind"] == "LLM"
    assert about[f"{prefix}identifier"] == "umbrela@3f2a0c1d9e8b"
    assert about["ragmeter.probability"] == metadata["ragmeter.probability"] == 0.05
    assert about["ragmeter.fingerprint"] == metadata["ragmeter.fingerprint"] == "3f2a0c1d9e8b"


def test_an_unscored_span_is_an_error_that_still_says_something() -> None:
    only = evaluator(score(value=None))
    about = plain(only.attributes)
    assert (only.status.code, only.status.message) == (Status.STATUS_CODE_ERROR, "no_text")
    assert about["error.type"] == "no_text"
    # the convention wants a score, a label or an explanation
    assert about["evaluations.0.evaluation.explanation"] == "unscored: no_text"
    assert "evaluations.0.evaluation.score" not in about
    assert about["evaluations.0.evaluation.annotator_kind"] == "CODE"


def test_the_same_result_has_the_same_ids_and_another_has_others() -> None:
    ids = {evaluator(JUDGED).span_id for _ in range(2)}
    assert len(ids) == 1
    others = [score("relevance", 2.5), score("answered", 1.0), score("relevance", scorer="umbrela")]
    assert len(ids | {evaluator(one).span_id for one in others}) == 4
    uids = {plain(record(one)[0].attributes)["log.record.uid"] for one in [JUDGED, JUDGED, *others]}
    assert len(uids) == 4


def test_text_of_a_trace_cannot_break_a_message() -> None:
    one = score(detail={"worst": "\ud800 half a letter", "more": "\x00'\n€"})
    text = plain(record(one)[0].attributes)["gen_ai.evaluation.explanation"]
    assert "half a letter" in str(text)
    assert "€" in str(text)
