"""Requests to decode: real ones, and small ones made by the official definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

__all__ = [
    "SPAN_ID",
    "TRACE_ID",
    "WIRE",
    "json_logs",
    "json_span",
    "json_traces",
    "proto_logs",
    "proto_span",
    "proto_traces",
]

WIRE = Path(__file__).parents[2] / "data" / "otlp" / "wire"
TRACE_ID = "00112233445566778899aabbccddeeff"
SPAN_ID = "0123456789abcdef"


def json_span(**fields: Any) -> dict[str, Any]:
    return {"traceId": TRACE_ID, "spanId": SPAN_ID, **fields}


def json_traces(*spans: Any) -> bytes:
    scopes = [{"scope": {"name": "a.scope", "version": "2"}, "spans": list(spans)}]
    return json.dumps({"resourceSpans": [{"scopeSpans": scopes}]}).encode()


def json_logs(*records: Any) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}).encode()


def proto_span(**fields: Any) -> WireSpan:
    ids = {"trace_id": bytes.fromhex(TRACE_ID), "span_id": bytes.fromhex(SPAN_ID)}
    return WireSpan(**(ids | fields))


def proto_traces(*spans: WireSpan) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add().scope_spans.add()
    group.scope.name, group.scope.version = "a.scope", "2"
    group.spans.extend(spans)
    return request.SerializeToString()


def proto_logs(*records: Any) -> bytes:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.extend(records)
    return request.SerializeToString()
