"""A collector that sends everything everywhere sends our results back to us: no trace comes of it,
whatever it has rewritten on the way."""

from __future__ import annotations

from collections import Counter

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from ragmeter.ingest.otlp import decode_logs
from ragmeter.ingest.stored_spans import serialise_log_events

from tests.exporters.otel.collector import serve
from tests.exporters.otel.running import awaited, exporting
from tests.exporters.otel.scores import done, score
from tests.waiting import until_async


def rewritten(body: bytes, *, resource: bool, scope: bool) -> bytes:
    """Our events after a collector that has given them other names."""
    request = ExportLogsServiceRequest.FromString(body)
    for group in request.resource_logs:
        if resource:
            group.resource.attributes[0].value.string_value = "checkout"
        for inner in group.scope_logs:
            if scope:
                inner.scope.name = "otelcol/transform"
    return request.SerializeToString()


@pytest.mark.parametrize(("resource", "scope"), [(False, False), (True, False), (True, True)])
@awaited
async def test_our_events_join_no_span(resource: bool, scope: bool) -> None:
    """They name the judged span: joined to it they would be content, or a late arrival."""
    scores = [score(), score("relevance", None), score("answered", 1.0, scorer="judge")]
    async with serve() as found, exporting(found.url) as (exporter, _):
        exporter.put(done(*scores, number=3))
        await until_async(lambda: len(found.records) == 9)
    refused: Counter[str] = Counter()
    ignored = 0
    for _, body in found.raw:
        decoded = decode_logs(rewritten(body, resource=resource, scope=scope), json=False)
        assert list(serialise_log_events(decoded.events, refused)) == []
        ignored += decoded.ignored
    assert ignored + refused.total() == 9
