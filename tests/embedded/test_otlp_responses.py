"""Replies are what the official definitions read."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from ragmeter.embedded.endpoints.otlp import MAX_MESSAGE, failure, parse_content_type, success
from ragmeter.ingest.otlp.protobuf import Status

from tests.tables import each_row


def body_of(response: web.Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


@each_row(
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
    assert body_of(success("protobuf", logs=logs)) == b""
    assert body_of(success("json", logs=logs)) == b"{}"
    assert success("json").content_type == "application/json"
    assert success("protobuf").content_type == "application/x-protobuf"


def test_partial_success_of_spans() -> None:
    read = ExportTraceServiceResponse.FromString(
        body_of(success("protobuf", rejected=3, message="3 bad_trace_id"))
    )
    assert read.partial_success.rejected_spans == 3
    assert read.partial_success.error_message == "3 bad_trace_id"
    # 64-bit integers are texts in OTLP/JSON
    assert json.loads(body_of(success("json", rejected=3, message="why"))) == {
        "partialSuccess": {"rejectedSpans": "3", "errorMessage": "why"}
    }


def test_partial_success_of_log_records() -> None:
    body = body_of(success("protobuf", logs=True, rejected=3, message="why"))
    assert ExportLogsServiceResponse.FromString(body).partial_success.rejected_log_records == 3
    assert json.loads(body_of(success("json", logs=True, rejected=3))) == {
        "partialSuccess": {"rejectedLogRecords": "3"}
    }


def test_a_warning_rejects_nothing() -> None:
    assert json.loads(body_of(success("json", message="careful"))) == {
        "partialSuccess": {"errorMessage": "careful"}
    }


@each_row(("status", "code"), [(400, 3), (413, 3), (415, 3), (429, 8), (503, 14), (418, 2)])
def test_failures(status: int, code: int) -> None:
    reply = failure("protobuf", status, "é" * 5_000)
    read = Status.FromString(body_of(reply))
    assert (read.code, read.message) == (code, "é" * MAX_MESSAGE)
    # field 1 varint, field 2 text: as google.rpc.Status has it
    assert body_of(failure("protobuf", status, "a")) == bytes([8, code, 18, 1, 97])
    assert json.loads(body_of(failure("json", status, "a"))) == {"code": code, "message": "a"}
