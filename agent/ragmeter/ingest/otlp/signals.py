"""Tell requests of metrics and logs from those of spans, which nothing in protobuf's frame does."""

from __future__ import annotations

from typing import Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from ragmeter.ingest.otlp.json_format import parse_json_body
from ragmeter.ingest.otlp.protobuf import first_record
from ragmeter.ingest.otlp.reader import UndecodableBody

OtherSignal = Literal["metrics", "logs"]
_KEYS: dict[str, OtherSignal] = {
    "resourceMetrics": "metrics",
    "resource_metrics": "metrics",
    "resourceLogs": "logs",
    "resource_logs": "logs",
}


def find_other_signal(body: bytes, *, json: bool) -> OtherSignal | None:
    """Return what a body without spans has in their place, None where that is not known."""
    try:
        return _signal_of_json(body) if json else _signal_of_protobuf(body)
    except UndecodableBody:
        return None


def _signal_of_json(body: bytes) -> OtherSignal | None:
    content = parse_json_body(body)
    keys = content if isinstance(content, dict) else ()
    return next((signal for key, signal in _KEYS.items() if key in keys), None)


def _signal_of_protobuf(body: bytes) -> OtherSignal | None:
    record = first_record(body)
    if record is None:
        return None
    try:
        metric = Metric.FromString(record)
        if metric.name and metric.WhichOneof("data"):
            return "metrics"
    except DecodeError:  # the ids of a span are no UTF-8 as a metric's name is
        pass
    try:
        log = LogRecord.FromString(record)
    except DecodeError:
        return None
    return "logs" if log.time_unix_nano or log.observed_time_unix_nano else None
