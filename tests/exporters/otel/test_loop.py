"""A collector that sends everything everywhere sends our results back to us: no trace comes of it,
whatever it has rewritten on the way."""

from __future__ import annotations

from collections import Counter

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.ingest.otlp import decode_logs, decode_traces
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.stored_spans import serialise_log_events, serialise_spans
from ragmeter_exporters.otel.encoding import (
    ExportedResult,
    ResultSelection,
    encode_logs,
    encode_spans,
)

from tests.exporters.otel.scores import done, score


def results() -> list[ExportedResult]:
    scores = [score(), score("relevance", None), score("answered", 1.0, scorer="judge")]
    selection = ResultSelection(ResultsExportSettings())
    return [one for pair in done(*scores, number=3) for one in selection.of(*pair, 10**18)]


def rewritten(*, resource: bool, scope: bool) -> bytes:
    """Our spans after a collector that has given them other names."""
    request = ExportTraceServiceRequest.FromString(encode_spans(results()))
    for group in request.resource_spans:
        if resource:
            group.resource.attributes[0].value.string_value = "checkout"
        for inner in group.scope_spans:
            if scope:
                inner.scope.name = "otelcol/transform"
    return request.SerializeToString()


@pytest.mark.parametrize(("resource", "scope"), [(False, False), (True, False), (False, True)])
def test_our_spans_are_not_even_kept(resource: bool, scope: bool) -> None:
    decoded = decode_traces(rewritten(resource=resource, scope=scope), json=False)
    refused: Counter[str] = Counter()
    assert len(decoded.spans) == 9
    assert list(serialise_spans(decoded.spans, refused)) == []
    assert refused == {"own": 9}
    found = extract_requests(decoded.spans, OtlpSettings())
    assert (found.traces, found.dropped) == ([], {"own": 9})


def test_a_span_with_none_of_our_names_is_still_an_evaluator() -> None:
    decoded = decode_traces(rewritten(resource=True, scope=True), json=False)
    found = extract_requests(decoded.spans, OtlpSettings())
    assert (found.traces, found.dropped) == ([], {"evaluator": 9})


def test_our_events_join_no_span() -> None:
    """They name the judged span: joined to it they would be content, or a late arrival."""
    decoded = decode_logs(encode_logs(results()), json=False)
    refused: Counter[str] = Counter()
    assert list(serialise_log_events(decoded.events, refused)) == []
    assert decoded.ignored + refused["own"] == 9
