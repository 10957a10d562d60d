"""Replies are what the official definitions read."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragmeter.ingest.otlp.bodies import (
    MAX_MESSAGE,
    encode_failure,
    encode_success,
    parse_content_type,
)
from ragmeter.ingest.otlp.protobuf import Status


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("application/x-protobuf", "protobuf"),
        ("application/protobuf", "protobuf"),
        ("Application/JSON; charset=utf-8", "json"),
        ("text/plain", None),
        ("", None),
        (None, None),
    ],
)
def test_content_types(header: str | None, form: str | None) -> None:
    assert parse_content_type(header) == form


@pytest.mark.parametrize("logs", [False, True])
def test_success_is_an_empty_message(logs: bool) -> None:
    assert encode_success("protobuf", logs=logs).body == b""
    assert encode_success("json", logs=logs).body == b"{}"
    assert encode_success("json").content_type == "application/json"
    assert encode_success("protobuf").content_type == "application/x-protobuf"


def test_partial_success_of_spans() -> None:
    read = ExportTraceServiceResponse.FromString(
        encode_success("protobuf", rejected=3, message="3 bad_trace_id").body
    )
    assert read.partial_success.rejected_spans == 3
    assert read.partial_success.error_message == "3 bad_trace_id"
    # 64-bit integers are texts in OTLP/JSON
    assert json.loads(encode_success("json", rejected=3, message="why").body) == {
        "partialSuccess": {"rejectedSpans": "3", "errorMessage": "why"}
    }


def test_partial_success_of_log_records() -> None:
    body = encode_success("protobuf", logs=True, rejected=3, message="why").body
    assert ExportLogsServiceResponse.FromString(body).partial_success.rejected_log_records == 3
    assert json.loads(encode_success("json", logs=True, rejected=3).body) == {
        "partialSuccess": {"rejectedLogRecords": "3"}
    }


def test_a_warning_rejects_nothing() -> None:
    assert json.loads(encode_success("json", message="careful").body) == {
        "partialSuccess": {"errorMessage": "careful"}
    }


@pytest.mark.parametrize(
    ("status", "code"), [(400, 3), (413, 3), (415, 3), (429, 8), (503, 14), (418, 2)]
)
def test_failures(status: int, code: int) -> None:
    reply = encode_failure("protobuf", status, "é" * 5_000)
    read = Status.FromString(reply.body)
    assert (read.code, read.message) == (code, "é" * MAX_MESSAGE)
    # field 1 varint, field 2 text: as google.rpc.Status has it
    assert encode_failure("protobuf", status, "a").body == bytes([8, code, 18, 1, 97])
    assert json.loads(encode_failure("json", status, "a").body) == {"code": code, "message": "a"}
